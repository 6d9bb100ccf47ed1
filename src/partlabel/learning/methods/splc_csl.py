"""Methods that decide in every batch, from the scores, how each unknown label is treated.

[1] Zhang et al., Simple and Robust Loss Design for Multi-Label Learning with Missing Labels,
    arXiv:2112.07368, 2021 (SPLC).
[2] Ben-Baruch et al., Multi-label Classification with Partial Annotations using Class-aware
    Selective Loss, CVPR 2022 (CSL).
"""

import warnings
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.base.numerics import widest
from partlabel.base.ranges import Epochs, Share, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.checks import warn_of_positives_only
from partlabel.learning.extensions import FollowsStages
from partlabel.learning.method import OnLogits, Predict, Stage, Task
from partlabel.models import Classifier


class SelfPaced(OnLogits):
    """Counts unknown labels as absent, or as present once they become likely (SPLC) [1].

    Args:
        threshold: an unknown label with a larger probability counts as present. Paper: 0.6.
        start: epochs in which all unknown labels count as absent. Paper: 1.
        margin: subtracted from the logits of labels known to be present. Paper: 1.
        gamma: focusing parameter. Paper: 2.
    """

    correct: Tensor

    def __init__(
        self,
        threshold: Share = 0.6,
        start: Epochs = 1,
        margin: Weight = 1.0,
        gamma: Weight = 2.0,
    ) -> None:
        super().__init__()
        self.threshold, self.start, self.margin, self.gamma = threshold, start, margin, gamma
        self.register_buffer("correct", torch.zeros((), dtype=torch.bool))

    def prepare(self, task: Task) -> None:
        """Raise an error if no label would ever be corrected."""
        if self.start >= task.epochs:
            raise InputError(
                f"start = {self.start}: no unknown label would count as present within "
                f"{task.epochs} epochs; set more --epochs, or a smaller --set start"
            )

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Switch the correction on after the first epochs."""
        self.correct.fill_(epoch >= self.start)
        return {}

    def is_settled(self, epoch: int) -> bool:
        """Never, because which unknown labels count as present depends on the scores."""
        return False

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.splc`."""
        return losses.splc(
            logits,
            batch.labels,
            self.threshold,
            self.margin,
            self.gamma,
            correct=bool(self.correct),
        )


class ClassAwareSelective(OnLogits, FollowsStages):
    """Counts unknown labels as absent; ignores likely ones and frequent classes (CSL) [2].

    The frequency of a class is estimated by a first model, trained on known labels only: it is the
    mean of its probabilities over the training images. Then the training starts again from the
    initial weights.

    Args:
        ignored: this many unknown labels per image are ignored, the most likely ones of each batch.
            5 in the authors' code, for 80 classes and more.
        prior: unknown labels of classes with a higher frequency are ignored. 0.05 by default in the
            authors' code, 0.5 in its examples.
        warmup: epochs of the first model, in addition to --epochs; 0 for no such model. Then no
            class counts as frequent.
        gamma_positive, gamma_negative, gamma_unknown: focusing parameters of present, absent and
            unknown labels. 0, 1, 2 by default in the authors' code; 0, 4, 4 in its examples.
    """

    frequency: Tensor

    in_one_batch = False  # the focal weights are part of the cost but get no gradient

    def __init__(
        self,
        ignored: Annotated[int, Field(ge=0)] = 5,
        prior: Share = 0.05,
        warmup: Epochs = 5,
        gamma_positive: Weight = 0.0,
        gamma_negative: Weight = 1.0,
        gamma_unknown: Weight = 2.0,
    ) -> None:
        super().__init__()
        self.ignored, self.prior, self.warmup = ignored, prior, warmup
        self.gammas = gamma_positive, gamma_negative, gamma_unknown
        self.in_warmup = False

    def prepare(self, task: Task) -> None:
        """Warn if the first model cannot be trained, or all unknown labels would be ignored."""
        classes = task.labels.shape[1]
        if self.warmup:
            instead = "Set warmup=0 to train without it"
            warn_of_positives_only(task.labels, "the first model of csl", instead)
        if self.ignored >= classes:
            warnings.warn(
                f"csl ignores {self.ignored} unknown labels per image, and there are {classes} "
                "classes: all unknown labels are ignored. Set a smaller ignored",
                PartlabelWarning,
                stacklevel=2,
            )
        self.register_buffer("frequency", torch.zeros(classes))

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """The first model, then the final one."""
        first = [Stage(self.warmup, patience=patience, aside=True)] if self.warmup else []
        return [*first, Stage(epochs, patience=patience)]

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Note whether the first model is trained."""
        self.in_warmup = bool(self.warmup) and stage == 0

    def after_stage(self, stage: int, predict: Predict) -> None:
        """Estimate the frequencies of classes with the first model."""
        total, images = torch.zeros_like(self.frequency, dtype=torch.float64), 0
        for rows, logits in predict():
            total += torch.sigmoid(widest(logits)).sum(dim=0)
            images += len(rows)
        self.frequency.copy_(total / max(images, 1))
        if bool((self.frequency > self.prior).all()):
            warnings.warn(
                f"every class is more frequent than prior = {self.prior:g}: all unknown labels are "
                "ignored. Set a larger prior",
                PartlabelWarning,
                stacklevel=2,
            )

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """By images for the first model; then None, as labels of all images are compared."""
        return super().part_weights(batch) if self.in_warmup else None

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.selective`; for the first model, :func:`losses.bce`."""
        if self.in_warmup:
            return losses.bce(logits, batch.labels)
        return losses.selective(
            logits, batch.labels, self.prior, self.ignored, *self.gammas, prior=self.frequency
        )
