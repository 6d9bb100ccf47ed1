"""Methods that count unknown labels as absent, and variants that reduce the effect of wrong ones.

[1] Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021 (AN, WAN, LS).
[2] Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels,
    ECCV 2022 (DW, L1R, L2R, N-LS; defaults are its choices for VOC, supplement B.2).
[3] Mac Aodha et al., Presence-Only Geographical Priors for Fine-Grained Image Classification,
    ICCV 2019 (the weight of WAN).
[4] Lin et al., Focal Loss for Dense Object Detection, ICCV 2017.
[5] Ridnik et al., Asymmetric Loss For Multi-Label Classification, ICCV 2021.
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from partlabel.base.ranges import Share, Softness, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.checks import warn_of_positives_only
from partlabel.learning.method import Figure, OnLogits, Task
from partlabel.models import Classifier


class AssumeNegative(OnLogits):
    """Counts unknown labels as absent: plain binary cross-entropy (AN) [1].

    This is the most common way to treat unknown labels, and the baseline for single positive
    labels.
    """

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.assume_negative`."""
        return losses.assume_negative(logits, batch.labels)


class DownWeighted(OnLogits):
    """Counts unknown labels as absent, with a lower weight (DW) [2].

    Args:
        weight: weight of unknown labels. Paper: 0.1 for VOC, COCO and NUS-WIDE, 0.02 for CUB.
    """

    def __init__(self, weight: Weight = 0.1) -> None:
        super().__init__()
        self.weight = weight

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.down_weighted`."""
        return losses.down_weighted(logits, batch.labels, self.weight)


class WeakAssumeNegative(OnLogits):
    """Counts unknown labels as absent, with weight 1 / (C - 1) for C classes (WAN) [1, 3].

    With one known label per image, its unknown labels together have the weight of one known label.
    """

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.down_weighted`."""
        return losses.down_weighted(logits, batch.labels, 1 / max(logits.shape[1] - 1, 1))


class WeightNorm1(AssumeNegative):
    """Counts unknown labels as absent; penalises the sum of absolute weights (L1R) [2].

    The sum is over all trained weights, without biases and the weights of normalisation layers.

    Args:
        weight: weight of the sum. Paper: 1e-6 for VOC, 1e-7 for COCO and NUS-WIDE, 1e-9 for CUB.
    """

    power = 1

    def __init__(self, weight: Weight = 1e-6) -> None:
        super().__init__()
        self.weight = weight

    def figures(self) -> dict[str, Figure]:
        """Also the penalty."""
        return super().figures() | {"norm": Figure.COST}

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """The cost of ``an`` plus the penalty; vectors (biases, norm weights) have no penalty."""
        parts = super().loss(model, batch)
        norms = [
            p.abs().pow(self.power).sum()
            for p in model.parameters()
            if p.requires_grad and p.ndim > 1
        ]
        norm = self.weight * sum(norms, start=parts["loss"].new_zeros(()))
        return parts | {"loss": parts["loss"] + norm, "norm": norm}


class WeightNorm2(WeightNorm1):
    """Counts unknown labels as absent; penalises the sum of squared weights (L2R) [2].

    The sum is over all trained weights, without biases and the weights of normalisation layers.

    Args:
        weight: weight of the sum. Paper: 1e-6 for VOC and NUS-WIDE, 1e-7 for COCO, 1e-8 for CUB.
    """

    power = 2


class LabelSmoothing(OnLogits):
    """Counts unknown labels as absent, with smoothed targets for all labels (LS) [1, 2].

    Args:
        epsilon: targets are 1 - epsilon and epsilon, not 1 and 0. Paper: 0.1 for all datasets.
    """

    def __init__(self, epsilon: Softness = 0.1) -> None:
        super().__init__()
        self.epsilon = epsilon

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.label_smoothing`."""
        return losses.label_smoothing(logits, batch.labels, self.epsilon)


class NegativeLabelSmoothing(OnLogits):
    """Counts unknown labels as absent, with a smoothed target for them only (N-LS) [2].

    Args:
        epsilon: target of unknown labels. Paper: 0.3 for VOC, 0.1 for the others.
    """

    def __init__(self, epsilon: Softness = 0.3) -> None:
        super().__init__()
        self.epsilon = epsilon

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.negative_label_smoothing`."""
        return losses.negative_label_smoothing(logits, batch.labels, self.epsilon)


class Focal(OnLogits):
    """Counts unknown labels as absent; hard labels have more weight (focal loss) [4].

    With ``unknown=ignore`` it learns known labels only, as in the figures of ``sr``'s paper.

    Args:
        gamma: focusing parameter; a larger value gives more weight to hard labels. Paper: 2.
        alpha: weight of present labels, 1 - alpha of all others. Paper [2]: 0.75 for all datasets.
        unknown: ``absent`` to count unknown labels as absent, ``ignore`` to leave them out.
    """

    def __init__(
        self,
        gamma: Weight = 2.0,
        alpha: Share = 0.75,
        unknown: Literal["absent", "ignore"] = "absent",
    ) -> None:
        super().__init__()
        self.gamma, self.alpha, self.unknown = gamma, alpha, unknown

    def prepare(self, task: Task) -> None:
        """Warn if known labels only are learned, and none of them is absent."""
        if self.unknown == "ignore":
            warn_of_positives_only(task.labels, "focal with unknown=ignore")

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.focal`."""
        return losses.focal(logits, batch.labels, self.gamma, self.alpha, self.unknown)


class Asymmetric(OnLogits):
    """Counts unknown labels as absent; easy negatives have little weight (ASL) [5].

    Args:
        gamma_positive, gamma_negative: focusing parameters of present labels and of all others.
            Paper [2]: 0, and 2 (CUB: 1).
        margin: a label that is not present costs nothing if its probability is lower. Paper [2]:
            0.2 (CUB: 0).
    """

    def __init__(
        self,
        gamma_positive: Weight = 0.0,
        gamma_negative: Weight = 2.0,
        margin: Annotated[float, Field(ge=0, lt=1)] = 0.2,
    ) -> None:
        super().__init__()
        self.gammas, self.margin = (gamma_positive, gamma_negative), margin

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.asymmetric`."""
        return losses.asymmetric(logits, batch.labels, *self.gammas, self.margin)
