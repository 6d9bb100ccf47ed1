"""Batches: the rows of a table, the model's inputs for them, and their labels."""

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
    """The input of a method's loss.

    Args:
        rows: [B] the rows of the training table.
        labels: [B, C] in {-1, 0, 1}, float.
        views: the model's inputs for each view, [B, ...]. If several processes train, these are the
            inputs of this process's share, while outputs of a model are those of the whole batch:
            give them to a model only, those of several views one after another.
        teacher: a running mean of the model, if the method keeps one.
        logged: whether figures that only the log shows are wanted; they are, in some of the steps.
    """

    rows: Tensor
    labels: Tensor
    views: dict[str, Tensor]
    teacher: "nn.Module | None" = None
    logged: bool = True

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class Inputs:
    """The model's inputs for one batch, without labels.

    Args:
        rows: [B] the rows whose image could be decoded.
        views: the model's inputs for each view, [B, ...].
        broken: the error message for each row whose image could not be decoded.
    """

    rows: Rows
    views: dict[str, Tensor]
    broken: dict[int, str] = field(default_factory=dict)


def in_batches(rows: Rows, size: int) -> list[Rows]:
    """Split rows into batches of ``size`` rows; the last may be smaller."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
