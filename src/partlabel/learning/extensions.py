"""What only some methods need beyond the contract of :class:`method.Method`.

A method inherits the extensions that it uses; the trainer and reports check for each by its type.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from partlabel.images.batches import Batch
from partlabel.learning.label_graph import LearnedGraph
from partlabel.learning.method import Method, Predict
from partlabel.learning.pseudo_labels.diary import Diary
from partlabel.learning.pseudo_labels.state import PseudoLabels
from partlabel.learning.similarity import Neighbours
from partlabel.models import Classifier


class FollowsStages(Method):
    """A method that acts when a stage begins or ends."""

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """A stage begins, or continues after a resume: switch on what belongs to it."""

    def after_stage(self, stage: int, predict: Predict) -> None:
        """A stage has ended and another follows; the model has the weights that were kept."""


class LooksAhead(Method):
    """A method that looks at the first batches of a stage before the stage trains on them."""

    @abstractmethod
    def look_ahead(self, stage: int, model: Classifier, batches: Iterator[Batch]) -> None:
        """Measure what the stage needs, on as many batches as the method takes.

        The model is in evaluation mode and must not change. After a stop in the middle of the first
        epoch of the stage, the method has its state from the checkpoint and is not asked again.
        """


class ChangesHead(Method):
    """A method that changes a head, whether its own or one that the settings name.

    Attributes:
        head_options: settings of the head, unless the user sets them.
    """

    head_options: dict[str, Any]

    def refine(self, head: nn.Module, classes: int) -> nn.Module:
        """The head with what the method adds to it."""
        return head


class HasTeacher(Method):
    """A method that needs a teacher: a running mean of the model, in ``batch.teacher``.

    Attributes:
        ema: the decay of the running mean, from 0 to 1.
    """

    ema: float


class HasOwnRates(Method):
    """A method whose own parameters have other learning rates than the model."""

    @abstractmethod
    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The method's parameters, as groups for the optimiser."""


class HasMembers(Method):
    """An ensemble: several models trained side by side, the first of which is the run's.

    Attributes:
        members: the number of models. ``predict`` gives the mean of their outputs.
    """

    members: int = 1

    def follow(self, leader: Method) -> None:
        """Train as a further member, on the decisions of the leader."""


class UsesSide(Method):
    """A method that uses side information: classes that show which images are alike."""


class EstimatesLabels(Method):
    """A method that has its own estimate of every training label, apart from the model's."""

    @abstractmethod
    def estimates(self) -> Tensor:
        """[N, C] the estimated probability that each training label is present."""


# similar images among those of a batch, from their mean features [B, D] and logits [B, C]
FindSimilar = Callable[[Tensor, Tensor, Batch], Neighbours]


@dataclass(frozen=True)
class Artifacts:
    """What a method keeps for reports.

    Args:
        pseudo_labels: labels that the method gave to unknown cells, in rounds.
        diary: unknown labels that it treated as present, by epoch.
        label_graph: its graph of labels.
        find_similar: how it finds similar images.
    """

    pseudo_labels: PseudoLabels | None = None
    diary: Diary | None = None
    label_graph: LearnedGraph | None = None
    find_similar: FindSimilar | None = None


class HasArtifacts(Method):
    """A method that keeps something for reports."""

    @abstractmethod
    def artifacts(self) -> Artifacts:
        """What the method keeps; asked after the training."""
