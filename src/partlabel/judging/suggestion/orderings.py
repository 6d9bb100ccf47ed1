"""Orders in which the unknown labels of a class can be asked for.

An :class:`Ordering` gives each cell of one class a priority; the highest is asked for first. Those
in ``ORDERINGS`` look at scores only. The order by information also needs features, see
:mod:`information`.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.base.randomness import Keys, key, uniform

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


class ClassCells(NamedTuple):
    """Unknown cells of one class.

    Args:
        column: the class.
        rows: [m] their images.
        logits: [m] of the model.
        draws: [m] random numbers from 0 to 1, which belong to the names of image and class.
    """

    column: int
    rows: Rows
    logits: Floats
    draws: Floats

    def where(self, kept: NDArray[np.bool_]) -> "ClassCells":
        """Only these cells."""
        return ClassCells(self.column, self.rows[kept], self.logits[kept], self.draws[kept])


class Ordering(Protocol):
    """A priority for each cell; the highest is asked for first."""

    def __call__(self, cells: ClassCells) -> Floats:
        """[m] the priorities."""


def at_random(cells: ClassCells) -> Floats:
    """In random order."""
    return cells.draws


def by_entropy(cells: ClassCells) -> Floats:
    """Those whose scores have the highest entropy, in nats."""
    size = np.abs(cells.logits)
    return np.asarray(np.log1p(np.exp(-size)) + size * expit(-size))


def by_margin(cells: ClassCells) -> Floats:
    """Those whose logits are next to the decision boundary."""
    return -np.abs(cells.logits)


def by_presence(cells: ClassCells) -> Floats:
    """Those that are most likely present, by their probability."""
    return np.asarray(expit(cells.logits))


ORDERINGS: Mapping[str, Ordering] = {
    "random": at_random,
    "entropy": by_entropy,
    "margin": by_margin,
    "most-likely-present": by_presence,
}


def draws_of(purpose: str, images: Keys, label: Keys) -> Floats:
    """[m] the random numbers of the cells of a class, by the keys of its images and its name.

    A cell has one number per purpose, for good: in every run, and however many labels are known.
    """
    return uniform(key(purpose), images, label)
