"""What a method has to say to the trainer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.data import Batch
from partlabel.labels import LabelTable
from partlabel.models import Classifier
from partlabel.models.heads import Linear

Predict = Callable[[], Iterator[tuple[NDArray[Any], Tensor]]]
"""Goes over the clean training pictures, model in evaluation mode: rows [B] and logits [B, C]."""


@dataclass(frozen=True)
class Stage:
    """A part of a training with an optimiser and a schedule of its own.

    Args:
        epochs: how many.
        lr: the learning rate; None for that of the settings.
        head_only: the backbone keeps its weights.
        patience: epochs without a better validation before the stage ends; None for never.
    """

    epochs: int
    lr: float | None = None
    head_only: bool = False
    patience: int | None = None


class Method(nn.Module, ABC):
    """A way to learn from partial labels.

    Constructor arguments are its settings. It is a module: per-cell parameters, queues and label
    memories are parameters and buffers, and so are saved and resumed with the model. Subclasses
    define :meth:`loss`, and what else they need.

    Attributes:
        views: the views of each picture that ``loss`` wants; they go through the backbone together.
        defaults: settings of the training that this method wants to be others than the usual.
        ema: how slowly the teacher follows the model, None for no teacher.
    """

    views: ClassVar[tuple[str, ...]] = ("weak",)
    defaults: ClassVar[dict[str, Any]] = {}
    ema: float | None = None

    def head(self, features: int, classes: int) -> nn.Module:
        """The head that this method trains, unless the settings name another."""
        return Linear(features, classes)

    def prepare(self, table: LabelTable) -> None:
        """Look at the training labels and set up state, before the first step of a new run."""

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """The parts of a training of ``epochs`` epochs."""
        return [Stage(epochs, patience=patience)]

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Between epochs: relabel, for example. What is returned is logged."""
        return {}

    @abstractmethod
    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """What a batch costs: ``"loss"``, and its parts by name for the log."""

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The method's own parameters, as groups for the optimiser."""
        own = list(self.parameters())
        return [{"params": own, "lr": lr, "weight_decay": 0.0}] if own else []
