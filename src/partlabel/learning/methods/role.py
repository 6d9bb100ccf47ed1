"""Methods that use the expected number of present labels per image.

[1] Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021 (EPR, ROLE,
    LinearInit).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.base.ranges import Epochs, Rate
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning import losses
from partlabel.learning.checks import refuse_more_than_memory
from partlabel.learning.extensions import EstimatesLabels, HasOwnRates
from partlabel.learning.method import OnLogits, Stage, Task

# initial estimates: unknown labels between 0.4 and 0.6, known ones at 0.995 or 0.005
_UNSURE, _SURE = 0.6, 0.995


class ExpectedPositive(OnLogits):
    """Constrains unknown labels by the expected number of present labels per image (EPR) [1].

    The loss is cross-entropy on known labels, plus a penalty if the predicted number of present
    labels per image differs from the expected one.

    Args:
        expected: present labels per image; None to estimate it from the validation labels. Paper:
            1.5 for VOC, 2.9 COCO, 1.9 NUS-WIDE, 31.4 CUB.
    """

    def __init__(self, expected: Rate | None = None) -> None:
        super().__init__()
        self.expected = expected

    def prepare(self, task: Task) -> None:
        """Estimate the number of present labels per image, unless it is set."""
        expected = self.expected
        self.positives = count_positives(task.validation) if expected is None else expected

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """None: the penalty is the square of a mean over all images."""
        return None

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.expected_positive`."""
        return losses.expected_positive(logits, batch.labels, expected=self.positives)


class Role(ExpectedPositive, HasOwnRates, EstimatesLabels):
    """Learns an estimate of each unknown label together with the classifier (ROLE) [1].

    The estimates are one logit per training label, N x C parameters. Classifier and estimates are
    the targets of each other, and both are constrained as in ``epr``.

    Args:
        expected: see ``epr``.
        estimator_lr: learning rate of the estimates, as a multiple of the classifier's. Paper: 10.
    """

    in_one_batch = False  # the estimates have their own learning rate

    def __init__(self, expected: Rate | None = None, estimator_lr: Rate = 10.0) -> None:
        super().__init__(expected)
        self.estimator_lr = estimator_lr

    def prepare(self, task: Task) -> None:
        """Set the initial estimates: certain for known labels, near 0.5 for unknown ones."""
        super().prepare(task)
        # a parameter, its gradient and two moments, and all but the gradient again in a checkpoint
        refuse_more_than_memory("ROLE for the estimates", 52 * math.prod(task.labels.shape))
        known = torch.from_numpy(task.labels.dense())
        unsure = math.log(_UNSURE / (1 - _UNSURE)) * (2 * torch.rand(known.shape) - 1)
        sure = math.log(_SURE / (1 - _SURE)) * known
        self.estimator = nn.Parameter(torch.where(known == 0, unsure, sure))

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The estimates, with their own learning rate."""
        return [{"params": [self.estimator], "lr": lr * self.estimator_lr, "weight_decay": 0.0}]

    def estimates(self) -> Tensor:
        """[N, C] the estimated probability of each training label."""
        return torch.sigmoid(self.estimator.detach())

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.role`."""
        estimates = self.estimator[batch.rows]
        return losses.role(logits, batch.labels, estimates=estimates, expected=self.positives)


class RoleLinearInit(Role):
    """As role, after a stage in which only the head is trained (ROLE + LinearInit) [1].

    Args:
        expected, estimator_lr: see ``role``.
        warmup: epochs of the first stage, in addition to --epochs. Paper: 25, before 10.
        warmup_lr: learning rate of the first stage.
    """

    def __init__(
        self,
        expected: Rate | None = None,
        estimator_lr: Rate = 10.0,
        warmup: Epochs = 25,
        warmup_lr: Rate = 1e-3,
    ) -> None:
        super().__init__(expected, estimator_lr)
        self.warmup, self.warmup_lr = warmup, warmup_lr

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """The head only, then the whole model from the best weights of the first stage."""
        first = Stage(self.warmup, lr=self.warmup_lr, head_only=True, patience=patience)
        return [*([first] if self.warmup else []), Stage(epochs, patience=patience)]


def count_positives(validation: LabelTable, instead: str = "expected=K") -> float:
    """Estimate the number of present labels per image.

    Only classes with labels known to be absent can be counted. The others are assumed to be as
    frequent on average.

    Args:
        validation: labels of which some are known to be absent.
        instead: setting that the error recommends if most classes cannot be counted.
    """
    counts = validation.counts()
    countable = counts.absent > 0
    if countable.sum() * 2 < len(countable) or not counts.present[countable].any():
        raise InputError(
            "cannot estimate the number of present labels per image: for most classes no "
            f"validation label is known to be absent; use --set {instead}"
        )
    present, absent = counts.present[countable], counts.absent[countable]
    return float((present / (present + absent)).mean() * len(countable))
