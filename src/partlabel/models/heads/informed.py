"""Heads that know a vector of each class, and a graph between classes."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from partlabel.models.heads.head import HasClassMaps


class Informed(HasClassMaps):
    """A head with vectors of the classes and a graph between them. Neither is trained.

    They are random vectors and no links until :meth:`inform` sets them, and are saved with the
    weights.

    Args:
        classes: C, number of logits.
        width: width of the vectors.
    """

    vectors: Tensor
    graph: Tensor

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("vectors", normalize(torch.randn(classes, width), dim=1))
        self.register_buffer("graph", torch.eye(classes))

    def inform(self, vectors: Tensor, graph: Tensor) -> None:
        """Set the vectors [C, width], scaled to length 1, and the graph [C, C]."""
        self.vectors.copy_(normalize(vectors, dim=1))
        self.graph.copy_(graph)
