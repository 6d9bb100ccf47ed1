"""Methods that decide in every batch, from the scores, what an unknown label counts as.

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
from partlabel.learning.method import OnLogits, Predict, Stage, Task
from partlabel.learning.methods.bce import warn_of_positives_only
from partlabel.models import Classifier


class SelfPaced(OnLogits):
    """Unknown labels count as absent, and those that become likely as present (SPLC) [1].

    Args:
        threshold: an unknown label with a larger probability counts as present. Paper: 0.6.
        start: epochs before unknown labels may count as present. Paper: 1.
        margin: by which known present labels are pushed further, in logits. Paper: 1.
        gamma: of the focal factor. Paper: 2.
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
        """Refuse a correction that never begins."""
        if self.start >= task.epochs:
            raise InputError(
                f"start = {self.start}: in {task.epochs} epochs nothing would be corrected; "
                "take more --epochs, or a smaller --set start"
            )

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Start to correct when it is time."""
        self.correct.fill_(epoch >= self.start)
        return {}

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


class ClassAwareSelective(OnLogits):
    """Unknown labels count as absent but for likely ones and those of frequent classes (CSL) [2].

    How frequent a class is says a first model, trained on known labels alone: the mean of its
    probabilities over the training images. The model itself then starts afresh.

    Args:
        ignored: so many unknown labels per image, the likeliest of a batch, are left out. 5 in
            the authors' code, for 80 classes and more.
        prior: unknown labels of classes more frequent than this are left out. 0.05 by default in
            the authors' code, 0.5 in its examples.
        warmup: epochs of the first model, before the others, 0 for none: then no class counts as
            frequent.
        gamma_positive, gamma_negative, gamma_unknown: of the focal factors. 0, 1, 2 by default in
            the authors' code; 0, 4, 4 in its examples.
    """

    frequency: Tensor

    in_one_batch = False  # weights of the cost get no gradient

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
        """Warn where no first model can be trained, and where nothing would be assumed."""
        classes = task.labels.shape[1]
        if self.warmup:
            instead = "Set warmup=0 to do without it"
            warn_of_positives_only(task.labels, "the first model of csl", instead)
        if self.ignored >= classes:
            warnings.warn(
                f"csl leaves out {self.ignored} unknown labels an image, and there are {classes} "
                "classes: no unknown label is ever learned from. Set a smaller ignored",
                PartlabelWarning,
                stacklevel=2,
            )
        self.register_buffer("frequency", torch.zeros(classes))

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """The first model, then the model itself."""
        first = [Stage(self.warmup, patience=patience, aside=True)] if self.warmup else []
        return [*first, Stage(epochs, patience=patience)]

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Know which model is trained."""
        self.in_warmup = bool(self.warmup) and stage == 0

    def after_stage(self, stage: int, predict: Predict) -> None:
        """Ask the first model how frequent classes are."""
        total, images = torch.zeros_like(self.frequency, dtype=torch.float64), 0
        for rows, logits in predict():
            total += torch.sigmoid(widest(logits)).sum(dim=0)
            images += len(rows)
        self.frequency.copy_(total / max(images, 1))
        if bool((self.frequency > self.prior).all()):
            warnings.warn(
                f"every class is more frequent than prior = {self.prior:g}: csl learns from no "
                "unknown label. Set a larger prior",
                PartlabelWarning,
                stacklevel=2,
            )

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.bce` for the first model, :func:`losses.selective` for the other."""
        if self.in_warmup:
            return losses.bce(logits, batch.labels)
        return losses.selective(
            logits, batch.labels, self.prior, self.ignored, *self.gammas, prior=self.frequency
        )
