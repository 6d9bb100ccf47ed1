"""Batches: rows of a table, the inputs of a model for them, and the labels that join them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from torch import nn

Rows = NDArray[np.int64]


@dataclass
class Batch:
    """What a method's loss sees.

    Args:
        rows: [B] the rows of the training table.
        labels: [B, C] in {-1, 0, 1}, float.
        views: for each view the inputs of the model, [B, ...].
        teacher: a running mean of the model, if the method keeps one.
    """

    rows: Tensor
    labels: Tensor
    views: dict[str, Tensor]
    teacher: "nn.Module | None" = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class Inputs:
    """The inputs of one batch, before labels join them; broken pictures are left out."""

    rows: Rows
    views: dict[str, Tensor]
    broken: dict[int, str] = field(default_factory=dict)


def in_batches(rows: Rows, size: int) -> list[Rows]:
    """Rows cut into batches of a size; the last may be smaller."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
