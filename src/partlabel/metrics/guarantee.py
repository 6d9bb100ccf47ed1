"""Guarantees for the labels that a model fills in, tested on labels reserved for this purpose.

A threshold on the confidence of labels is accepted if the labels beyond it are shown to be correct
with at least the required precision. Thresholds are tested one after another, from a confident one
downwards, and the first failure ends the sequence (fixed-sequence testing [1]). Therefore the
chance of a wrong guarantee is at most 5%, however many thresholds are tested. Which thresholds are
tested, in which order, and on which classes together, never depends on the labels that they are
tested on. A label is only filled in if it is more likely right than wrong.

[1] Maurer, Hothorn and Lehmacher, Multiple comparisons in drug clinical trials and preclinical
    assays: a-priori ordered hypotheses, 1995. Angelopoulos et al., Learn then test, 2021.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.bounds import can_pass, fewest
from partlabel.metrics.guarantee_thresholds import Limit, passing_limits, predicted_power
from partlabel.metrics.known_cells import KnownCells
from partlabel.metrics.sampling import Basis, Population, Sample, Unit, draw_sample

_ALONE = 0.99  # expected chance to pass from which on a class is tested on its own
_PLENTY = {PRESENT: 20, ABSENT: 8}  # times the fewest labels, to be tested alone without choosing
_ALIKE = 0.5  # a class is pooled if its ratio of reserved to unknown labels is not far below others


@dataclass(frozen=True)
class Guarantee:
    """The guarantee for present or for absent labels of one class.

    Args:
        limit: the threshold, and what it was tested on.
        basis: whose labels it was tested on: ``class`` for those of the class alone, ``pooled`` for
            those of several classes together, None if there is no guarantee.
        pool: the classes that were tested together.
    """

    limit: Limit
    basis: Basis | None
    pool: tuple[int, ...] = ()


_NONE = Guarantee(Limit(), None)


@dataclass(frozen=True)
class Guarantees:
    """The guarantees for present labels [C] and for absent labels [C] of all classes."""

    present: list[Guarantee]
    absent: list[Guarantee]
    unit: Unit = "cell"

    def of(self, value: int) -> list[Guarantee]:
        """The guarantees [C] for ``PRESENT`` or for ``ABSENT``."""
        return self.present if value == PRESENT else self.absent

    def thresholds(self, value: int) -> NDArray[np.float64]:
        """[C] the least confidence in a value from which on it is filled in; inf for never."""
        return np.array([guarantee.limit.threshold for guarantee in self.of(value)])

    def decide(self, scores: NDArray[Any]) -> NDArray[np.int8]:
        """Labels [n, C] for calibrated logits [n, C]; 0 where nothing is guaranteed."""
        high, low = self.thresholds(PRESENT), self.thresholds(ABSENT)
        filled = np.where(scores >= high, PRESENT, np.where(-scores >= low, ABSENT, 0))
        return filled.astype(np.int8)

    @property
    def any(self) -> bool:
        """Whether anything is guaranteed."""
        return any(one.basis for one in [*self.present, *self.absent])


def nothing_guaranteed(classes: int, unit: Unit = "cell") -> Guarantees:
    """No guarantee for any class."""
    return Guarantees([_NONE] * classes, [_NONE] * classes, unit)


def find_guarantees(
    first: KnownCells | None, population: Population, precision: float, basis: Basis | None = None
) -> Guarantees:
    """Find what can be guaranteed for each class, on its own labels or on those of a pool.

    A class without an absent label in the first part gets no guarantee. Its known labels are then
    probably not a random sample, and any threshold would pass.

    Args:
        first: labels that were not trained on, with calibrated logits as scores. They decide where
            sequences start and which classes are pooled. None if there are no labels to decide by:
            then sequences start where a few errors are allowed, and classes with plenty of labels
            are tested on their own.
        population: the labels to fill in, and those that test. The values of the latter are used
            for nothing but the tests.
        precision: share of the filled-in labels that must be right.
        basis: ``class`` tests each class on its own, ``pooled`` tests all classes together. By
            default a class is tested on its own if it is expected to pass, and otherwise pooled.
    """
    chooses = population.tests if first is None else first
    columns = chooses.columns[chooses.labels == ABSENT]
    has_absent = np.bincount(columns, minlength=population.classes) > 0
    usable = np.flatnonzero(has_absent & population.ratios.astype(bool)).tolist()
    present, absent = (
        _guarantees_for(first, population, usable, value, precision, basis)
        for value in (PRESENT, ABSENT)
    )
    return Guarantees(present, absent, population.unit)


def _guarantees_for(
    first: KnownCells | None,
    population: Population,
    usable: list[int],
    value: int,
    precision: float,
    basis: Basis | None,
) -> list[Guarantee]:
    """The guarantees [C] for present or for absent labels; ``usable`` are the classes to test."""
    guarantees = [_NONE] * population.classes
    for tested_on, classes in _groups(first, population, usable, value, precision, basis):
        sample = draw_sample(population, classes, value)
        # most labels are absent, so a pool of them would pass with labels that are hardly likely
        floored = tested_on == "pooled" and value == ABSENT
        chooser = None if first is None else _confidence(first, classes, value)
        limits = passing_limits(chooser, sample, precision, _floor(precision) if floored else 0.0)
        for j in classes if limits else []:
            guarantees[j] = Guarantee(limits[-1], tested_on, tuple(classes))
    return guarantees


def _groups(
    first: KnownCells | None,
    population: Population,
    usable: list[int],
    value: int,
    precision: float,
    basis: Basis | None,
) -> list[tuple[Basis, list[int]]]:
    """Which classes are tested on their own and which together, decided on the first part."""
    if basis == "class":
        return [("class", [j]) for j in usable]
    alone: list[int] = []
    if basis is None:
        alone = [j for j in usable if _is_alone(first, population, j, value, precision)]
    rest = sorted(set(usable) - set(alone))
    ratios = population.ratios[rest]
    least = _ALIKE * float(np.median(ratios)) if rest else 0.0
    pools = [[j for j, far in zip(rest, ratios < least, strict=True) if far == k] for k in (0, 1)]
    groups: list[tuple[Basis, list[int]]] = [*(("class", [j]) for j in alone)]
    return groups + [("pooled", pool) for pool in pools if pool]


def _floor(precision: float) -> float:
    """The least confidence of an absent label of a pool: at most twice the errors allowed."""
    least = 1 - 2 * (1 - precision)
    return max(math.log(least / (1 - least)), 0.0) if least > 0 else 0.0


def _is_alone(
    first: KnownCells | None, population: Population, j: int, value: int, precision: float
) -> bool:
    """Whether a class is expected to pass on its own labels.

    With labels to decide by, this is so if they say that some threshold passes nearly surely.
    Without, if the class has plenty of labels of the value.
    """
    if first is None:
        labels = population.tests.labels[population.tests_by_class[j]]
        return int((labels == value).sum()) >= _PLENTY[value] * fewest(precision)
    if not _may_pass(population, j, precision):
        return False
    sample = draw_sample(population, [j], value)
    powers = predicted_power(_confidence(first, [j], value), sample, precision)
    return bool(len(powers) and powers.max() >= _ALONE)


def _may_pass(population: Population, j: int, precision: float) -> bool:
    """Whether a class has enough cells for a threshold to pass if no reserved label is wrong.

    With thousands of classes most have too few, which this tells in a hundredth of the time that it
    takes to look at each threshold.
    """
    ratio = float(population.ratios[j])
    cells = int(population.spread.cells[j].sum()) + len(population.tests_by_class[j])
    return can_pass(cells, ratio / (1 + ratio), precision)


def _confidence(known: KnownCells, classes: Sequence[int], value: int) -> Sample:
    """The known cells of some classes, as predictions of ``PRESENT`` or of ``ABSENT``."""
    cells = np.concatenate([known.by_class[j] for j in classes])
    confidence = value * known.scores[cells]
    order = np.argsort(-confidence, kind="stable")
    return Sample(
        confidence[order],
        np.ones(len(order), dtype=np.bool_),
        (known.labels[cells] != value)[order],
        known.rows[cells][order].astype(np.int64),
        1.0,
    )
