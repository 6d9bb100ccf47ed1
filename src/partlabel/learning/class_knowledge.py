"""What is known of classes before a training: their vectors, and which occur together."""

from typing import ClassVar

import torch
from torch import Tensor

from partlabel.base.errors import InputError
from partlabel.labels import LabelTable
from partlabel.labels.formats.vectors import read_vectors
from partlabel.learning.checks import warn_of_positives_only
from partlabel.learning.cooccurrence import conditional_shares, label_vectors
from partlabel.learning.extensions import FollowsStages
from partlabel.learning.method import Task
from partlabel.models import Classifier
from partlabel.models.heads import Informed


def initial_vectors(source: str, labels: LabelTable, width: int) -> Tensor:
    """Class vectors [C, width] from a file, or from which labels occur together."""
    if source == "cooccurrence":
        return torch.from_numpy(label_vectors(labels, width))
    vectors = torch.from_numpy(read_vectors(source, list(labels.classes)))
    if vectors.shape[1] != width:
        raise InputError(
            f"{source}: vectors have {vectors.shape[1]} numbers, not {width}; "
            f"set --set width={vectors.shape[1]}"
        )
    return vectors


class InformsHead(FollowsStages):
    """A method whose head knows vectors of the classes and which of them occur together.

    Attributes:
        name: of the method, for warnings.

    Args:
        width: width of the vectors.
        vectors: ``cooccurrence``, or a file; see :func:`initial_vectors`.
    """

    name: ClassVar[str]
    files = ("vectors",)

    def __init__(self, width: int, vectors: str) -> None:
        super().__init__()
        self.width, self.source = width, vectors

    def prepare(self, task: Task) -> None:
        """Compute or read the class vectors, and count which labels occur together."""
        warn_of_positives_only(task.labels, self.name)
        self.vectors = initial_vectors(self.source, task.labels, self.width)
        self.graph = self.make_graph(torch.from_numpy(conditional_shares(task.labels)))

    def make_graph(self, shares: Tensor) -> Tensor:
        """The graph [C, C] of the head from conditional shares [C, C]; by default these."""
        return shares

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Set the vectors and the graph of the head."""
        assert isinstance(model.head, Informed)
        model.head.inform(self.vectors, self.graph)
