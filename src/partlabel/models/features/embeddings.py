"""Vectors that are given instead of images: batches of them, and what replaces the backbone."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.images.batches import Inputs, Rows
from partlabel.models.backbones import Backbone
from partlabel.models.precision import Precision
from partlabel.models.reduction import Reduction

Transform = Callable[[Tensor], Tensor]


class Vectors(Protocol):
    """Vectors that are read on demand, from a file or from memory."""

    def read(self, rows: Rows) -> Tensor:
        """The vectors [b, D] of these rows."""


class ArrayVectors:
    """Vectors [n, D] in memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))

    def read(self, rows: Rows) -> Tensor:
        """The vectors [b, D] of these rows."""
        return self.tensor[torch.from_numpy(rows)]


class Embeddings:
    """The vectors of n images as batches for a model: feature maps of a single position.

    Args:
        vectors: where they are read from.
        rows: [n] the row of each image there.
    """

    block = 1024

    def __init__(self, vectors: Vectors, rows: Rows) -> None:
        self.vectors, self.rows = vectors, rows
        self.transform: Transform = lambda maps: maps

    def batches(
        self,
        rows: Sequence[Rows],
        views: tuple[str, ...],
        epoch: int = 0,
        workers: int | None = None,
    ) -> Iterator[Inputs]:
        """The inputs of batches of images, in this order; all views are the same."""
        for part in rows:
            maps = self.transform(self.vectors.read(self.rows[part])[:, :, None, None])
            yield Inputs(part, dict.fromkeys(views, maps))


class GivenFeatures(Backbone):
    """In place of a backbone, where features are given: it only passes them on.

    Args:
        features: D, numbers in a vector.
        reduce: number of principal components to keep of them; None to keep them as they are.
        power: of the features, before they are reduced.
        precision: of what the head computes outside of the training steps.
    """

    anchor: Tensor

    def __init__(
        self,
        features: int,
        reduce: int | None = None,
        power: float = 1.0,
        precision: Precision = "32",
    ) -> None:
        nn.Module.__init__(self)
        self.name, self.frozen, self.size, self.precision = "none", "all", 0, precision
        self.mirror = False
        self.lower, self.upper = nn.Identity(), nn.Identity()
        self._freeze()
        self.register_buffer("anchor", torch.empty(0), persistent=False)  # tells the device
        self.reduction = nn.Identity() if reduce is None else Reduction(features, reduce, power)
        self.channels = features if reduce is None else reduce
        self.reduction.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """Feature maps [B, D, 1, 1], which are the inputs, already reduced."""
        return inputs
