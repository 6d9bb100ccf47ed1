"""Entropy maximisation on unknown labels, and its opposite.

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
from partlabel.learning.method import OnLogits, Predict, Task
from partlabel.learning.methods.role import count_positives

Alpha = Weight | Literal["auto"]


class EntropyMaximization(OnLogits):
    """Unknown labels stay unknown: the model is asked to keep an open mind about them (EM) [1].

    Args:
        alpha: weight of the entropy. Paper: 0.2 for VOC, 0.1 for COCO and NUS-WIDE, 0.01 for CUB;
            ``auto`` sets r / (10 (1 - r)), r being the share of present labels that are known,
            estimated on validation labels of both signs.
    """

    def __init__(self, alpha: Alpha = 0.2) -> None:
        super().__init__()
        self.alpha = alpha

    def prepare(self, task: Task) -> None:
        """Decide an automatic alpha."""
        if self.alpha == "auto":
            self.weight = automatic_alpha(task.labels, task.validation)
        else:
            self.weight = self.alpha

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Log the alpha that was chosen."""
        return {"alpha": self.weight} if self.alpha == "auto" else {}

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.entropy_maximization`."""
        return losses.entropy_maximization(logits, batch.labels, self.weight)


class EntropyMinimization(OnLogits):
    """Unknown labels are made certain, whichever way (EntMin) [2].

    Works poorly where only positives are known [1], since then everything may become present.

    Args:
        weight: of the entropy. Paper [1]: 0.01 for VOC, 0.9 for COCO, 0.4 for NUS-WIDE and CUB.
    """

    def __init__(self, weight: Weight = 0.01) -> None:
        super().__init__()
        self.weight = weight

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.entropy_minimization`."""
        return losses.entropy_minimization(logits, batch.labels, self.weight)


def automatic_alpha(labels: LabelTable, validation: LabelTable) -> float:
    """An alpha for these labels: r / (10 (1 - r)), where r is the share of present labels known.

    Among pictures that look alike and all have a class, a share r says so and the others say
    nothing. Their logit comes to rest where r (1 - p) = (1 - r) alpha x p (1 - p), that is where
    x p = r / ((1 - r) alpha): this alpha puts it at 10. The paper's choices come to 11 on VOC and
    NUS-WIDE, 5 on COCO, 3 on CUB. Where nearly all is known r counts as 0.8: alpha is 0.4 at most.

    Args:
        labels: the training labels, whose known positives are counted.
        validation: labels of both signs, which tell how many positives there should be.
    """
    expected = count_positives(validation, instead="alpha=0.1") * len(labels)
    share = min(float(labels.counts().present.sum()) / max(expected, 1e-9), 0.8)
    return share / (1 - share) / 10
