"""Entropy maximisation and entropy minimisation on unknown labels.

[1] Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels,
    ECCV 2022.
[2] Grandvalet and Bengio, Semi-supervised Learning by Entropy Minimization, NIPS 2004.
"""

from typing import Literal

from torch import Tensor

from partlabel.base.ranges import Weight
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning import losses
from partlabel.learning.method import Figure, OnLogits, Predict, Task
from partlabel.learning.methods.role import count_positives

Alpha = Weight | Literal["auto"]


class EntropyMaximization(OnLogits):
    """Keeps predictions for unknown labels uncertain by maximising their entropy (EM) [1].

    Args:
        alpha: weight of the entropy. Paper: 0.2 for VOC, 0.1 for COCO and NUS-WIDE, 0.01 for CUB.
            ``auto`` sets r / (10 (1 - r)), where r is the share of present labels that are known.
            It is estimated from the validation labels, of which some must be known to be absent.
    """

    def __init__(self, alpha: Alpha = 0.2) -> None:
        super().__init__()
        self.alpha = alpha

    def prepare(self, task: Task) -> None:
        """Set the weight of the entropy."""
        if self.alpha == "auto":
            self.weight = automatic_alpha(task.labels, task.validation)
        else:
            self.weight = self.alpha

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Log an automatic alpha."""
        return {"alpha": self.weight} if self.alpha == "auto" else {}

    def figures(self) -> dict[str, Figure]:
        """Also an automatic alpha."""
        return super().figures() | {"alpha": Figure.SETTING}

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.entropy_maximization`."""
        return losses.entropy_maximization(logits, batch.labels, self.weight)


class EntropyMinimization(OnLogits):
    """Pushes predictions for unknown labels towards 0 or 1 by minimising entropy (EntMin) [2].

    Works poorly if only present labels are known [1], since then all labels may become present.

    Args:
        weight: weight of the entropy. Paper [1]: 0.01 for VOC, 0.9 for COCO, 0.4 for NUS-WIDE and
            CUB.
    """

    def __init__(self, weight: Weight = 0.01) -> None:
        super().__init__()
        self.weight = weight

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.entropy_minimization`."""
        return losses.entropy_minimization(logits, batch.labels, self.weight)


def automatic_alpha(labels: LabelTable, validation: LabelTable) -> float:
    """An alpha for these labels: r / (10 (1 - r)), where r is the share of present labels known.

    Consider similar images in which a class is present, where a share r of them has a known label
    and the others an unknown one. With logit x and probability p, the gradient of the loss is 0
    where r (1 - p) = (1 - r) alpha x p (1 - p), that is where x p = r / ((1 - r) alpha). This alpha
    makes x p = 10. The paper's values of alpha correspond to 11 on VOC and NUS-WIDE, 5 on COCO and
    3 on CUB. r is at most 0.8, so alpha is at most 0.4.

    Args:
        labels: the training labels, whose known present labels are counted.
        validation: present and absent labels, from which the number of present ones is estimated.
    """
    expected = count_positives(validation, instead="alpha=0.1") * len(labels)
    share = min(float(labels.counts().present.sum()) / max(expected, 1e-9), 0.8)
    return share / (1 - share) / 10
