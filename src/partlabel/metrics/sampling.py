"""The labels that are filled in and the reserved labels that test them, as one population."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import PRESENT
from partlabel.metrics.known_cells import positions_by_class
from partlabel.metrics.spread import Spread

Basis = Literal["class", "pooled"]  # whose labels a guarantee is tested on
Unit = Literal["cell", "image"]  # what is drawn at random: labels, or images


class Sample(NamedTuple):
    """Cells in the order of their confidence, the highest first, of which a sample has labels.

    Args:
        confidence: [m] logit of the predicted value: 0 means a probability of one half.
        reserved: [m] whether the label of a cell is known, and tests.
        wrong: [m] whether a reserved label contradicts the prediction.
        image: [m] index of the image that a cell belongs to, or of the images that belong together;
            of reserved labels.
        fraction: every class has at least this share of its cells reserved.
        unit: what was drawn at random.
        draw: [m] random numbers, by which one cell of an image is drawn if images are the unit.
        cells: [m] how many cells an entry stands for; None if each is one cell. A reserved label is
            always one.
    """

    confidence: NDArray[Any]
    reserved: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    image: NDArray[np.int64]
    fraction: float
    unit: Unit = "cell"
    draw: NDArray[Any] | None = None
    cells: NDArray[np.int64] | None = None

    def ranks(self) -> NDArray[np.int64]:
        """[m] how many cells have at least the confidence of an entry, or stand before it."""
        size = len(self.confidence)
        return np.arange(1, size + 1) if self.cells is None else np.cumsum(self.cells)


class ReservedLabels(NamedTuple):
    """Reserved labels [t] that test a guarantee.

    Args:
        columns: their classes.
        labels: 1 or -1.
        low, high: calibrated logits, rounded as those of the unknown cells are: down, and up.
        draws: uniform random numbers, which decide what is left out of a test.
        groups: the groups of their images.
        images: their images, or the first of the images that belong together.
        rows: their images.
    """

    columns: NDArray[np.int64]
    labels: NDArray[np.int8]
    low: NDArray[Any]
    high: NDArray[Any]
    draws: NDArray[Any]
    groups: NDArray[np.int64]
    images: NDArray[np.int64]
    rows: NDArray[np.int64]

    def take(self, positions: NDArray[Any]) -> "ReservedLabels":
        """The labels at these positions, or those that a mask chooses."""
        return ReservedLabels(*(part[positions] for part in self))


@dataclass(frozen=True)
class Population:
    """Cells whose labels no training has seen: unknown ones to fill in, and reserved ones to test.

    Args:
        spread: the calibrated logits of the cells to fill in.
        unknown: [G, C] how many cells are to fill in, by the group of their image. Labels are
            missing at random within a class and group.
        tests: the reserved labels.
        unit: ``cell`` if reserved labels are a random sample of all cells of a class and group that
            no training has seen; ``image`` if images are alike, and those with reserved labels are
            independent of those with unknown ones.
    """

    spread: Spread
    unknown: NDArray[np.int64]
    tests: ReservedLabels
    unit: Unit

    @property
    def classes(self) -> int:
        """C, the number of classes."""
        return int(self.unknown.shape[1])

    @cached_property
    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[G, C] the unknown and the reserved cells of each group; one group if images are drawn.

        Cells of a group without reserved labels cannot be filled in, and do not count.
        """
        size = len(self.unknown) * self.classes
        flat = self.tests.groups * self.classes + self.tests.columns
        reserved = np.bincount(flat, minlength=size).reshape(self.unknown.shape)
        if self.unit == "cell":
            return self.unknown, reserved
        return self.unknown.sum(axis=0)[None], reserved.sum(axis=0)[None]

    @cached_property
    def tests_by_class(self) -> list[NDArray[np.int64]]:
        """[C] the positions of the tests of each class."""
        return positions_by_class(self.tests.columns, self.classes)

    @cached_property
    def ratios(self) -> NDArray[np.float64]:
        """[C] reserved labels per unknown one, the lowest of all groups; 0 if one has none."""
        unknown, reserved = self.counts
        ratio = np.where(unknown > 0, reserved / np.maximum(unknown, 1), np.inf).min(axis=0)
        return np.where(np.isinf(ratio), 0.0, ratio)


def draw_sample(
    population: Population, classes: list[int], value: int, least: float = -np.inf
) -> Sample:
    """The cells of some classes as predictions of a value, with a sample of equal ratio of each.

    Classes and groups may have different shares of known labels. Reserved labels are left out at
    random until all of them have the same number of reserved labels per unknown one, so that each
    class weighs as much in the test as among the labels that are filled in.

    Args:
        least: cells with less confidence are not in the sample.
    """
    ratio = float(population.ratios[classes].min())
    tests, spread = _equal_tests(population, classes, ratio), population.spread
    tests = tests.take((tests.low if value == PRESENT else -tests.high) >= least)
    confident = {j: spread.confidence(j, value) >= least for j in classes}
    unknown = [spread.confidence(j, value)[confident[j]] for j in classes]
    number = sum(map(len, unknown))
    confidence = np.concatenate([*unknown, tests.low if value == PRESENT else -tests.high])
    order = np.argsort(-confidence, kind="stable")
    ones, nothing = np.ones(len(tests.labels), dtype=np.int64), np.zeros(number, dtype=np.int64)
    return Sample(
        confidence[order],
        (order >= number),
        np.concatenate([nothing.astype(np.bool_), tests.labels != value])[order],
        np.concatenate([nothing - 1, tests.images])[order],
        ratio / (1 + ratio),
        population.unit,
        np.concatenate([nothing.astype(np.float64), tests.draws])[order],
        np.concatenate([*(spread.cells[j][confident[j]] for j in classes), ones])[order],
    )


def _equal_tests(population: Population, classes: list[int], ratio: float) -> ReservedLabels:
    """Reserved labels of some classes, with the same number per unknown one in all of them."""
    unknown, reserved = population.counts
    tests, kept = population.tests, []
    for j in classes:
        own = population.tests_by_class[j]
        keep = np.ceil(ratio * unknown[:, j] - 1e-9).astype(np.int64)
        for group in np.flatnonzero(keep < reserved[:, j]):
            is_member = np.ones(len(own), dtype=np.bool_)
            if population.unit == "cell":
                is_member = tests.groups[own] == group
            members = own[is_member]
            chosen = members[np.argsort(tests.draws[members], kind="stable")[: keep[group]]]
            own = np.concatenate([own[~is_member], chosen])
        kept.append(own)
    return tests.take(np.concatenate(kept))
