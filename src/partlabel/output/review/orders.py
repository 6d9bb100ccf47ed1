"""The orders in which a board shows the labels of a class.

An order is a function of the labels of one class. To add one, for example by expected gain, write
such a function and add it to ``ORDERS``. The first one is the default.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from partlabel.metrics.calibration import logits

Priority = NDArray[np.float64]


class OrderName(StrEnum):
    """The orders of a board."""

    USEFUL = "useful"
    DOUBTFUL = "doubtful"
    LIKELY = "likely"
    FILLED = "filled"
    SUSPECTS = "suspects"
    SIMILAR = "similar"


@dataclass(frozen=True)
class ClassLabels:
    """The labels of one class, for all n images.

    Args:
        known: [n] the labels before the review, in {-1, 0, 1}.
        answered: [n] whether a reviewer has said something.
        scores: [n] the best score there is: of the head that learns, or of the run; may be NaN.
        decided: [n] what the run fills in with a guarantee.
        suspect: [n] the rank among the suspects, counted from 1; 0 for the others.
        similar: computes how similar each image is to the examples; None if there are none.
        useful: computes the rows that tell most about the class, in order; None without features.
    """

    known: NDArray[np.int8]
    answered: NDArray[np.bool_]
    scores: NDArray[np.float32]
    decided: NDArray[np.int8]
    suspect: NDArray[np.int64]
    similar: Callable[[], NDArray[np.float32]] | None = None
    useful: Callable[[], NDArray[np.int64]] | None = None


class Order(Protocol):
    """Gives each label [n] of a class a priority; minus infinity leaves it out."""

    def __call__(self, labels: ClassLabels) -> Priority:
        """[n] the priorities; higher comes first."""


def _only(eligible: NDArray[np.bool_], priority: NDArray[np.generic]) -> Priority:
    return np.where(eligible, priority.astype(np.float64), -np.inf)


def doubtful(labels: ClassLabels) -> Priority:
    """Unknown labels, those nearest to a score of one half first; last those without a score."""
    doubt = -np.abs(logits(np.nan_to_num(labels.scores, nan=0.0)))
    return _only((labels.known == 0) & ~labels.answered, doubt)


def useful(labels: ClassLabels) -> Priority:
    """Unknown labels that tell most about the class, as in ``suggest``; then doubtful ones."""
    priority = doubtful(labels)
    if labels.useful is not None:
        rows = labels.useful()
        still_open = rows[priority[rows] > -np.inf]
        priority[still_open] = np.arange(len(still_open), 0, -1)  # all others are at most 0
    return priority


def likely(labels: ClassLabels) -> Priority:
    """Unknown labels, the most likely present first."""
    score = np.nan_to_num(labels.scores, nan=-1.0)
    return _only((labels.known == 0) & ~labels.answered, score)


def filled(labels: ClassLabels) -> Priority:
    """Labels that the run fills in, the least confident first."""
    confidence = np.abs(np.nan_to_num(labels.scores, nan=0.5) - 0.5)
    return _only((labels.decided != 0) & ~labels.answered, -confidence)


def suspects(labels: ClassLabels) -> Priority:
    """Known labels that look wrong, the least likely first."""
    return _only((labels.suspect > 0) & ~labels.answered, -labels.suspect)


def similar(labels: ClassLabels) -> Priority:
    """Unknown labels of the images that are most similar to the examples."""
    if labels.similar is None:
        return np.full(len(labels.known), -np.inf)
    return _only((labels.known == 0) & ~labels.answered, labels.similar())


ORDERS: dict[str, Order] = {
    OrderName.USEFUL: useful,
    OrderName.DOUBTFUL: doubtful,
    OrderName.LIKELY: likely,
    OrderName.FILLED: filled,
    OrderName.SUSPECTS: suspects,
    OrderName.SIMILAR: similar,
}


def first(priority: Priority, number: int) -> NDArray[np.int64]:
    """The rows with the highest priorities, the highest first; rows in order where they are equal.

    >>> first(np.array([0.1, -np.inf, 0.7, 0.1]), 3).tolist()
    [2, 0, 3]
    """
    rows = np.flatnonzero(priority > -np.inf)
    if number < 1:
        return rows[:0]
    if len(rows) > number:
        least = np.partition(priority[rows], len(rows) - number)[len(rows) - number]
        rows = rows[priority[rows] >= least]
    return rows[np.argsort(-priority[rows], kind="stable")][:number]
