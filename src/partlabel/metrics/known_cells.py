"""Known labels with their scores, one entry per label: all that metrics and calibration need.

A table of scores has one number per image and class. Of millions of images it would not fit into
memory, but known labels are few.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class KnownCells:
    """Known labels and their scores, image by image.

    Args:
        rows: [m] the image of each label.
        columns: [m] the class of each label.
        labels: [m] 1 (present) or -1 (absent).
        scores: [m] higher means more likely present.
        classes: C, the number of classes.
    """

    rows: NDArray[np.integer[Any]]
    columns: NDArray[np.integer[Any]]
    labels: NDArray[np.int8]
    scores: NDArray[Any]
    classes: int

    def __len__(self) -> int:
        return len(self.labels)

    def where(self, keep: Mask) -> "KnownCells":
        """Only the labels for which ``keep`` [m] is true."""
        return replace(
            self,
            rows=self.rows[keep],
            columns=self.columns[keep],
            labels=self.labels[keep],
            scores=self.scores[keep],
        )

    @cached_property
    def by_class(self) -> list[Integers]:
        """[C] the positions of the labels of each class, in their order."""
        return positions_by_class(self.columns, self.classes)


def known_cells(scores: NDArray[Any], labels: NDArray[Any]) -> KnownCells:
    """The known labels of arrays: scores [n, C], and labels [n, C] in {-1, 0, 1}.

    >>> known_cells(np.array([[0.2, 0.9]]), np.array([[0, 1]])).scores.tolist()
    [0.9]
    """
    rows, columns = np.nonzero(labels)
    values = labels[rows, columns].astype(np.int8)
    return KnownCells(rows, columns, values, scores[rows, columns], labels.shape[1])


def joined(parts: Sequence[KnownCells], classes: int) -> KnownCells:
    """The labels of several parts, one after the other."""
    empty = np.empty(0, dtype=np.int64)
    nothing = KnownCells(empty, empty, empty.astype(np.int8), np.empty(0), classes)
    every = [part for part in parts if len(part)] or [nothing]
    return KnownCells(
        np.concatenate([part.rows for part in every]),
        np.concatenate([part.columns for part in every]),
        np.concatenate([part.labels for part in every]),
        np.concatenate([part.scores for part in every]),
        classes,
    )


def positions_by_class(columns: NDArray[np.integer[Any]], classes: int) -> list[Integers]:
    """[C] the positions of the cells of each class, in their order, given columns [m].

    >>> [positions.tolist() for positions in positions_by_class(np.array([1, 0, 1]), 3)]
    [[1], [0, 2], []]
    """
    small = columns.astype(np.uint16) if classes <= 1 << 16 else columns  # sorted digit by digit
    order = np.argsort(small, kind="stable")
    ends = np.cumsum(np.bincount(columns, minlength=classes))
    return np.split(order, ends[:-1]) if classes else []
