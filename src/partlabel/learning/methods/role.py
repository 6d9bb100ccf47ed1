"""Methods that know how many labels of an image are present on average.

[1] Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021 (EPR, ROLE,
    LinearInit).
"""

import math
import os
from typing import Any

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.base.ranges import Epochs, Rate
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning import losses
from partlabel.learning.method import OnLogits, Stage, Task

_UNSURE, _SURE = 0.6, 0.995  # the estimator's first guesses: unknown within .4 to .6, known at .995


class ExpectedPositive(OnLogits):
    """Known labels, and as many present labels an image as expected (EPR) [1].

    Args:
        expected: present labels per image; None counts them on the validation labels. Paper: 1.5
            for VOC, 2.9 COCO, 1.9 NUS-WIDE, 31.4 CUB.
    """

    def __init__(self, expected: Rate | None = None) -> None:
        super().__init__()
        self.expected = expected

    def prepare(self, task: Task) -> None:
        """Count the present labels of validation images."""
        given = self.expected
        self.positives = count_positives(task.validation) if given is None else given

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.expected_positive`."""
        return losses.expected_positive(logits, batch.labels, expected=self.positives)


class Role(ExpectedPositive):
    """A classifier and an estimator of all training labels teach each other (ROLE) [1].

    The estimator is a logit for each cell of the training table: N x C parameters.

    Args:
        expected: see ``epr``.
        estimator_lr: learning rate of the estimator, as a multiple of the classifier's. Paper: 10.
    """

    in_one_batch = False  # the estimator has a rate of its own

    def __init__(self, expected: Rate | None = None, estimator_lr: Rate = 10.0) -> None:
        super().__init__(expected)
        self.estimator_lr = estimator_lr

    def prepare(self, task: Task) -> None:
        """Make the first estimates: sure of known labels, about even on the others."""
        super().prepare(task)
        # a parameter, its gradient and two moments, and all but the gradient again in a checkpoint
        need = 52 * math.prod(task.labels.shape)
        if need > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise InputError(
                f"ROLE needs {need / 1e9:.0f} GB for the estimates of all training labels, more "
                "than there is memory here; em-apl keeps its labels on disk"
            )
        known = torch.from_numpy(task.labels.dense())
        unsure = math.log(_UNSURE / (1 - _UNSURE)) * (2 * torch.rand(known.shape) - 1)
        sure = math.log(_SURE / (1 - _SURE)) * known
        self.estimator = nn.Parameter(torch.where(known == 0, unsure, sure))

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The estimator, at its own rate."""
        return [{"params": [self.estimator], "lr": lr * self.estimator_lr, "weight_decay": 0.0}]

    def estimates(self) -> Tensor:
        """[N, C] what the estimator says."""
        return torch.sigmoid(self.estimator.detach())

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.role`."""
        estimates = self.estimator[batch.rows]
        return losses.role(logits, batch.labels, estimates=estimates, expected=self.positives)


class RoleLinearInit(Role):
    """ROLE, first with the backbone as it is, then with all that may train (ROLE + LI) [1].

    Args:
        expected, estimator_lr: see ``role``.
        warmup: epochs of the head alone, before the others. Paper: 25, before 10.
        warmup_lr: learning rate of those epochs.
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
        """The head alone, then everything from the best weights of that."""
        first = Stage(self.warmup, lr=self.warmup_lr, head_only=True, patience=patience)
        return [*([first] if self.warmup else []), Stage(epochs, patience=patience)]


def count_positives(validation: LabelTable, instead: str = "expected=K") -> float:
    """Present labels per image, from classes of which some labels are known to be absent.

    Classes without a known absence are taken to be like the others; they may not be the majority.
    Otherwise an error asks for the setting ``instead``.
    """
    counts = validation.counts()
    counted = counts.absent > 0
    if counted.sum() * 2 < len(counted) or not counts.present[counted].any():
        raise InputError(
            "how many labels of an image are present cannot be counted: for most classes no "
            f"validation label is known to be absent; say it with --set {instead}"
        )
    present, absent = counts.present[counted], counts.absent[counted]
    return float((present / (present + absent)).mean() * len(counted))
