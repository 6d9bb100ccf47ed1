"""What a method has to say to the trainer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning import losses
from partlabel.models import Classifier
from partlabel.models.heads import Linear

WHOLE_BATCH = "lbfgs"  # the optimiser that takes all images at once


class Predict(Protocol):
    """Goes over the clean training pictures, model in evaluation mode."""

    def __call__(
        self, forward: Callable[[Classifier, Tensor], Tensor] | None = None
    ) -> Iterator[tuple[NDArray[Any], Tensor]]:
        """Rows [B] and logits [B, C], or what ``forward(model, inputs)`` gives instead of them.

        ``forward`` can repeat the head on one backbone pass, with dropout on for example.
        """


@dataclass(frozen=True)
class Stage:
    """A part of a training with an optimiser and a schedule of its own.

    Args:
        epochs: how many.
        lr, schedule, optimizer: None for those of the settings.
        head_only: the backbone keeps its weights and its batch statistics.
        patience: epochs without a better validation of this stage before it ends; None for never.
        aside: of the first stage: trains a model that only serves the method. None of its epochs is
            kept, and the next stage starts from the weights that this one began with. The method's
            own parameters go on.

    A stage starts from the weights of the one before that are kept: the best, or the last.
    """

    epochs: int
    lr: float | None = None
    schedule: str | None = None
    optimizer: str | None = None
    head_only: bool = False
    patience: int | None = None
    aside: bool = False


@dataclass(frozen=True)
class Task:
    """What a method is told before it starts.

    Args:
        labels: of the training images; row i of a batch is row i of this table.
        validation: labels of the validation images, as humans gave them.
        epochs: as set; a method may add a warm-up of its own.
        folder: where to keep on disk what is too large for a checkpoint; None for nowhere.
        side: of the training images, classes that are not to be learned but tell which are alike.
    """

    labels: LabelTable
    validation: LabelTable
    epochs: int
    folder: Path | None = None
    side: LabelTable | None = None


class Method(nn.Module, ABC):
    """A way to learn from partial labels.

    Constructor arguments are its settings. It is a module: per-cell parameters and queues are
    parameters and buffers, and so are saved and resumed with the model; pseudo-labels are in a
    ``LabelMemory`` on disk. Subclasses define :meth:`loss`, and what else they need.

    Attributes:
        views: the views of each picture that ``loss`` wants; they go through the backbone together.
        defaults: settings of the training that this method wants to be others than the usual.
        dropout: share of its inputs that the head leaves out in training.
        ema: how slowly the teacher follows the model, None for no teacher.
        members: models that are trained side by side, whose mean ``predict`` gives; the first one
            is the run's.
        uses_side: whether side information means something to it.
        in_one_batch: whether all images can be one batch whose cost is asked for again and again
            within a step, as the optimiser ``lbfgs`` does: then ``loss`` must change nothing, and
            its gradient must be that of what it returns.
    """

    views: tuple[str, ...] = ("weak",)
    defaults: ClassVar[dict[str, Any]] = {}
    dropout: float = 0.0
    ema: float | None = None
    members: int = 1
    uses_side: ClassVar[bool] = False
    in_one_batch: ClassVar[bool] = False

    def head(self, features: int, classes: int) -> nn.Module:
        """The head that this method trains, if its maths needs one of its own."""
        return Linear(features, classes, dropout=self.dropout)

    def refine(self, head: nn.Module, classes: int) -> nn.Module:
        """What the method puts on a head, its own or one that the settings name."""
        return head

    def prepare(self, task: Task) -> None:
        """Look at the labels and set up state, before the first step and after a stop."""

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """The parts of a training of ``epochs`` epochs."""
        return [Stage(epochs, patience=patience)]

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """A stage begins, or goes on after a stop: switch on what belongs to it."""

    def after_stage(self, stage: int, predict: Predict) -> None:
        """A stage is over and another follows; the model has the best weights of this one."""

    def follow(self, leader: "Method") -> None:
        """Train as a further member, on what the leader decides."""

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Between epochs: relabel, for example. What is returned is logged.

        Torch's generator is seeded for this epoch, so what is random here resumes too.
        """
        return {}

    @abstractmethod
    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """What a batch costs: ``"loss"``, and its parts by name for the log."""

    def estimates(self) -> Tensor | None:
        """[N, C] how likely the method itself thinks each training label present, if it does."""
        return None

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The method's own parameters, as groups for the optimiser."""
        own = list(self.parameters())
        return [{"params": own, "lr": lr, "weight_decay": 0.0}] if own else []


class OnLogits(Method):
    """A method that looks at the logits of one view: subclasses define :meth:`cost`."""

    in_one_batch = True

    @abstractmethod
    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """What the logits [B, C] of a batch cost."""

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """The cost, and for the log how well known positives are learned."""
        logits = model(batch.views["weak"])
        positives = losses.known_positives(logits.detach(), batch.labels)
        return {"loss": self.cost(logits, batch), "positives": positives}


def warmed(
    warmup: int | None, epochs: int, patience: int | None, *, solve: bool = False
) -> list[Stage]:
    """A first stage of ``warmup`` epochs, or half of all if None, and one of what is left.

    With ``solve`` the first one takes all images at once.
    """
    first = -(-epochs // 2) if warmup is None else warmup
    if first >= epochs:
        raise InputError(
            f"a warm-up of {first} of {epochs} epochs leaves nothing to come after it; take more "
            "--epochs, or a smaller --set warmup"
        )
    last = Stage(epochs - first, patience=patience)
    if not first:
        return [last]
    warm = Stage(first, patience=patience)
    return [replace(warm, optimizer=WHOLE_BATCH, lr=1.0) if solve else warm, last]


def refuse_idle(switch: str, on: bool, /, **given: bool) -> None:
    """Refuse settings that were given but do nothing without a switch."""
    idle = [name for name, is_given in given.items() if is_given]
    if idle and not on:
        raise InputError(f"{' and '.join(idle)} without {switch}: would do nothing")
