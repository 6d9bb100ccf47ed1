"""The labels that are filled in and the reserved labels that test them, as one population."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import PRESENT

Basis = Literal["class", "pooled"]  # whose labels a guarantee is tested on
Unit = Literal["cell", "image"]  # what is drawn at random: labels, or images


class Sample(NamedTuple):
    """Cells in the order of their confidence, the highest first, of which a sample has labels.

    Args:
        confidence: [m] logit of the predicted value: 0 means a probability of one half.
        reserved: [m] whether the label of a cell is known, and tests.
        wrong: [m] whether a reserved label contradicts the prediction.
        image: [m] index of the image that a cell belongs to, or of the images that belong together.
        fraction: every class has at least this share of its cells reserved.
        unit: what was drawn at random.
        draw: [m] random numbers, by which one cell of an image is drawn if images are the unit.
    """

    confidence: NDArray[Any]
    reserved: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    image: NDArray[np.int64]
    fraction: float
    unit: Unit = "cell"
    draw: NDArray[Any] | None = None


@dataclass(frozen=True)
class Population:
    """Cells whose labels no training has seen: unknown ones to fill in, and reserved ones to test.

    Args:
        scores: [n, C] calibrated logits.
        labels: [n, C] the reserved labels; 0 for all other cells.
        unknown: [n, C] the cells to fill in.
        draws: [n, C] uniform random numbers, which decide what is left out of a test.
        groups: [n] the group of each image. Labels are missing at random within a class and group.
        unit: ``cell`` if reserved labels are a random sample of all cells of a class and group that
            no training has seen; ``image`` if images are alike, and those with reserved labels are
            independent of those with unknown ones.
        together: [n] the same number for images that belong together, which count as one; None if
            every image is on its own.
    """

    scores: NDArray[Any]
    labels: NDArray[Any]
    unknown: NDArray[np.bool_]
    draws: NDArray[Any]
    groups: NDArray[np.int64]
    unit: Unit
    together: NDArray[np.int64] | None = None

    @cached_property
    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[G, C] the unknown and the reserved cells of each group; one group if images are drawn.

        Cells of a group without reserved labels cannot be filled in, and do not count.
        """
        groups = self.groups if self.unit == "cell" else np.zeros_like(self.groups)
        number = int(groups.max(initial=0)) + 1
        unknown, reserved = (
            np.stack([part[groups == group].sum(axis=0) for group in range(number)])
            for part in (self.unknown, self.labels != 0)
        )
        return unknown, reserved

    def ratios(self) -> NDArray[np.float64]:
        """[C] reserved labels per unknown one, the lowest of all groups; 0 if one has none."""
        unknown, reserved = self.counts
        ratio = np.where(unknown > 0, reserved / np.maximum(unknown, 1), np.inf).min(axis=0)
        return np.where(np.isinf(ratio), 0.0, ratio)

    def presence(self, j: int) -> tuple[int, int]:
        """The reserved labels of a class that are present, and all of them."""
        labels = self.labels[:, j]
        return int((labels == PRESENT).sum()), int((labels != 0).sum())


def draw_sample(population: Population, classes: list[int], value: int) -> Sample:
    """The cells of some classes as predictions of a value, with a sample of equal ratio of each.

    Classes and groups may have different shares of known labels. Reserved labels are left out at
    random until all of them have the same number of reserved labels per unknown one, so that each
    class weighs as much in the test as among the labels that are filled in.
    """
    ratio = float(population.ratios()[classes].min())
    unknown, reserved = population.counts
    keep = np.ceil(ratio * unknown[:, classes] - 1e-9).astype(np.int64)
    labels, draws = population.labels[:, classes], population.draws[:, classes]
    tests = labels != 0
    one_group = population.unit == "image"
    for group, column in zip(*np.nonzero(keep < reserved[:, classes]), strict=True):
        members = tests[:, column] if one_group else tests[:, column] & (population.groups == group)
        rows = np.flatnonzero(members)
        rows = rows[np.argsort(draws[rows, column], kind="stable")]
        tests[rows[keep[group, column] :], column] = False
    cells = population.unknown[:, classes] | tests
    confidence = value * population.scores[:, classes][cells]
    order = np.argsort(-confidence, kind="stable")
    image = np.nonzero(cells)[0][order]
    return Sample(
        confidence[order],
        tests[cells][order],
        (tests & (labels != value))[cells][order],
        image if population.together is None else population.together[image],
        ratio / (1 + ratio),
        population.unit,
        draws[cells][order],
    )
