"""The method contract: what the trainer asks of a method.

A method needs :meth:`Method.loss`, and often nothing else. What only a few methods need stands in
``extensions``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.base.choices import WHOLE_BATCH, Optimizer, Schedule
from partlabel.base.errors import InputError
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning import losses
from partlabel.models import Classifier

PSEUDO_LABELS = "pseudo_labels"
"""The figure that a method logs if it gave labels before an epoch: how many."""


class Predict(Protocol):
    """Goes over the clean training images, with the model in evaluation mode."""

    def __call__(
        self, forward: Callable[[Classifier, Tensor], Tensor] | None = None
    ) -> Iterator[tuple[NDArray[Any], Tensor]]:
        """Rows [B] and logits [B, C], or the outputs of ``forward(model, inputs)`` instead.

        ``forward`` can run the head several times on one backbone pass, for example with dropout.
        """


class Figure(Enum):
    """What a logged figure is. Reports draw each kind in its own way."""

    COST = "cost"  # the loss, or a part of it
    SETTING = "setting"  # a value that the method chose, such as a weight
    COUNT = "count"  # a number of labels or images
    SHARE = "share"  # a fraction from 0 to 1


@dataclass(frozen=True)
class Stage:
    """A part of a training with its own optimiser and schedule.

    A stage starts from the weights that the stage before kept: the best, or the last.

    Args:
        epochs: the number of epochs.
        lr, schedule, optimizer: None for those of the settings.
        head_only: the backbone keeps its weights and its batch statistics.
        patience: end the stage after this many epochs without a better validation; None for never.
        aside: for the first stage only. It trains a model that only serves the method: none of its
            epochs is kept, and the next stage starts from the initial weights again. The method's
            own parameters carry over.
        by_class: each class keeps its own best epoch of this stage, or its weights from the stage
            before if these are better. Needs a head with one row of weights per class.
    """

    epochs: int
    lr: float | None = None
    schedule: Schedule | None = None
    optimizer: Optimizer | None = None
    head_only: bool = False
    patience: int | None = None
    aside: bool = False
    by_class: bool = False


@dataclass(frozen=True)
class Task:
    """What a method can look at before training starts.

    Args:
        labels: labels of the training images; row i of a batch is row i of this table.
        validation: labels of the validation images, those given by humans.
        epochs: as set; a method may add warm-up epochs of its own.
        folder: where to store what is too large for a checkpoint; None for nowhere.
        side: for the training images, classes that are not learned but show which images are
            alike.
    """

    labels: LabelTable
    validation: LabelTable
    epochs: int
    folder: Path | None = None
    side: LabelTable | None = None


class Method(nn.Module, ABC):
    """A way to learn from partial labels.

    Constructor arguments are its settings. A method is a module, so its parameters and buffers are
    saved and resumed with the model.

    Attributes:
        views: the views of each image that :meth:`loss` needs; they go through the backbone
            together.
        defaults: training settings for which this method has its own default.
        files: settings that may name a file; a run keeps a copy of it.
        in_one_batch: whether :meth:`loss` is a deterministic function of the weights, so that the
            optimiser ``lbfgs`` can evaluate it several times per step on all images.
    """

    views: tuple[str, ...] = ("weak",)
    defaults: ClassVar[dict[str, Any]] = {}
    files: ClassVar[tuple[str, ...]] = ()
    in_one_batch: ClassVar[bool] = False

    def head(self, features: int, classes: int) -> nn.Module | None:
        """The head, if the method needs its own; None for the one that the settings name."""
        return None

    def prepare(self, task: Task) -> None:
        """Look at the labels and set up state, before the first step and after a resume."""

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """The stages of a training of ``epochs`` epochs."""
        return [Stage(epochs, patience=patience)]

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Called before each epoch, to relabel for example. Returns figures for the log.

        Torch's generator is seeded for this epoch, so random choices made here resume exactly.
        """
        return {}

    @abstractmethod
    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """The loss of a batch as ``"loss"``, and its parts by name for the log.

        What takes time and only serves the log may be left out unless ``batch.logged``; the log has
        the mean over the steps that have it.
        """

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """How much a part of the images weighs in each figure of :meth:`loss`.

        If the loss of all images is the mean of the losses of their parts with these weights, the
        optimiser ``lbfgs`` sums it up part by part, so that memory does not grow with the images.
        None if it is not such a mean. A figure that is not named weighs as much as the loss.
        """
        return None

    def figures(self) -> dict[str, Figure]:
        """What each figure is that :meth:`loss` and :meth:`before_epoch` return."""
        return {"loss": Figure.COST, "positives": Figure.COST}

    def is_settled(self, epoch: int) -> bool:
        """Whether the loss stays the same function from this epoch on: no relabelling to come."""
        return True


class OnLogits(Method):
    """A method whose loss is a function of the logits of one view: define :meth:`cost`."""

    in_one_batch = True

    @abstractmethod
    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of logits [B, C], a scalar."""

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """By images, as the cost is a mean over images; a method with another one overrides it."""
        return weights_by_images(batch)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """The cost, and for the log the cross-entropy of known positives."""
        logits = model(batch.views["weak"])
        parts = {"loss": self.cost(logits, batch)}
        if batch.logged:
            parts["positives"] = losses.known_positives(logits.detach(), batch.labels)
        return parts


def weights_by_images(batch: Batch) -> dict[str, float]:
    """Weights of a part if a loss is a mean over images; see :meth:`Method.part_weights`."""
    weights = {"loss": float(len(batch))}
    if batch.logged:
        weights["positives"] = float((batch.labels > 0).sum())
    return weights


def weights_by_labels(batch: Batch) -> dict[str, float]:
    """Weights of a part if a loss is a mean over known labels."""
    known = float((batch.labels != 0).sum())
    return weights_by_images(batch) | {"loss": known}


def warm_up_stages(
    warmup: int | None, epochs: int, patience: int | None, *, solve: bool = False
) -> list[Stage]:
    """Two stages of ``epochs`` epochs together.

    Args:
        warmup: epochs of the first stage; None for half of them, 0 for no such stage.
        epochs: of both stages.
        patience: of each stage.
        solve: train the first stage with L-BFGS, on all images at once.
    """
    first = -(-epochs // 2) if warmup is None else warmup
    if first >= epochs:
        raise InputError(
            f"a warm-up of {first} of {epochs} epochs leaves none for the rest; set more --epochs, "
            "or a smaller --set warmup"
        )
    last = Stage(epochs - first, patience=patience)
    if not first:
        return [last]
    warm = Stage(first, patience=patience)
    return [replace(warm, optimizer=WHOLE_BATCH, lr=1.0) if solve else warm, last]
