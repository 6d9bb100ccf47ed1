"""Entropy maximisation on unknown labels, and its opposite.

[1] Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels,
    ECCV 2022.
[2] Grandvalet and Bengio, Semi-supervised Learning by Entropy Minimization, NIPS 2004.
"""

from typing import Literal

from torch import Tensor

from partlabel import losses
from partlabel.data import Batch
from partlabel.labels import LabelTable
from partlabel.methods.base import OnLogits, Task

Alpha = float | Literal["auto"]


class EntropyMaximization(OnLogits):
    """Unknown labels stay unknown: the model is asked to keep an open mind about them (EM) [1].

    Args:
        alpha: weight of the entropy. Paper: 0.2 for VOC, 0.1 for COCO and NUS-WIDE, 0.01 for CUB;
            ``auto`` decides by how many labels are known, see :func:`automatic_alpha`.
    """

    def __init__(self, alpha: Alpha = 0.2) -> None:
        super().__init__()
        self.alpha = alpha

    def prepare(self, task: Task) -> None:
        """Decide an automatic alpha."""
        self.weight = automatic_alpha(task.labels) if self.alpha == "auto" else self.alpha

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.entropy_maximization`."""
        return losses.entropy_maximization(logits, batch.labels, self.weight)


class EntropyMinimization(OnLogits):
    """Unknown labels are made certain, whichever way (EntMin) [2].

    Works poorly where only positives are known [1], since then everything may become present.

    Args:
        weight: of the entropy. Paper [1]: 0.01 for VOC, 0.9 for COCO, 0.4 for NUS-WIDE and CUB.
    """

    def __init__(self, weight: float = 0.01) -> None:
        super().__init__()
        self.weight = weight

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.entropy_minimization`."""
        return losses.entropy_minimization(logits, batch.labels, self.weight)


def automatic_alpha(labels: LabelTable) -> float:
    """An alpha for these labels.

    The entropy of all unknown cells together weighs as much as four known positives, which is what
    the paper's choices come to (VOC 3.8, CUB 3.1, COCO and NUS-WIDE 7.9). It stands in for
    negatives; where some are known, it is scaled down by the share of positives among known
    labels.
    """
    counts = labels.counts()
    present, absent = int(counts.present.sum()), int(counts.absent.sum())
    unknown = int(counts.unknown.sum())
    return 4 * present / max(unknown, 1) * present / max(present + absent, 1)
