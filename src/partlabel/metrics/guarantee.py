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
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.bounds import can_pass, fewest
from partlabel.metrics.guarantee_thresholds import Limit, Prospect, passing_limits, prospect_of
from partlabel.metrics.known_cells import KnownCells
from partlabel.metrics.sampling import Basis, Population, Sample, Unit, draw_sample

_ALONE = (0.99, 0.9, 0.5)  # chances to pass: classes with more may be tested alone
_WORTH = 0.95  # of the labels that another way would find: then it is not worth a change
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
            are tested on their own. Calibrated scores must not decide it: they have seen the labels
            that test.
        population: the labels to fill in, and those that test. The values of the latter are used
            for nothing but the tests if there are labels to decide by; otherwise the numbers of
            present and of absent ones also decide which classes are tested, and which alone.
        precision: share of the filled-in labels that must be right.
        basis: ``class`` tests each class on its own, ``pooled`` tests all classes together. By
            default classes that are likely to pass are tested on their own, and the others pooled,
            if that is not expected to find clearly less than larger pools.
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
    for group in _groups(first, population, usable, value, precision, basis):
        if population.unit == "cell" and not _may_pass(population, group, precision):
            continue
        chooser = None if first is None else _confidence(first, group.classes, value)
        sample = _sample(population, group, value)
        limits = passing_limits(chooser, sample, precision, _floor(group, value, precision))
        for j in group.classes if limits else []:
            guarantees[j] = Guarantee(limits[-1], group.basis, group.classes)
    return guarantees


class _Group(NamedTuple):
    """Classes that are tested together, or one that is tested on its own."""

    basis: Basis
    classes: tuple[int, ...]


def _groups(
    first: KnownCells | None,
    population: Population,
    usable: list[int],
    value: int,
    precision: float,
    basis: Basis | None,
) -> list[_Group]:
    """Which classes are tested on their own and which together."""
    if basis == "class":
        return [_Group("class", (j,)) for j in usable]
    if basis == "pooled":
        return _with_pools(population, usable, [])
    if first is None:
        plenty = _plentiful(population, usable, value, precision)
        return _with_pools(population, usable, plenty)
    return _most_promising(first, population, usable, value, precision)


def _most_promising(
    first: KnownCells, population: Population, usable: list[int], value: int, precision: float
) -> list[_Group]:
    """The way to group classes that is expected to find most labels, by the labels that choose.

    Classes that are nearly sure to pass are tested alone, unless another way is expected to find
    clearly more.
    """

    @cache
    def prospect(group: _Group) -> Prospect:
        if population.unit == "cell" and not _may_pass(population, group, precision):
            return Prospect()
        chooser = _confidence(first, group.classes, value)
        sample = _sample(population, group, value)
        return prospect_of(chooser, sample, precision, _floor(group, value, precision))

    chances = [prospect(_Group("class", (j,))).chance for j in usable]
    pairs = list(zip(usable, chances, strict=True))
    alone = [tuple(j for j, chance in pairs if chance >= least) for least in _ALONE]
    ways = [_with_pools(population, usable, some) for some in dict.fromkeys([*alone, ()])]
    finds = [sum(prospect(group).finds for group in way) if ways[1:] else 0.0 for way in ways]
    return next(way for way, find in zip(ways, finds, strict=True) if find >= _WORTH * max(finds))


def _plentiful(
    population: Population, usable: list[int], value: int, precision: float
) -> list[int]:
    """The classes with so many known labels of a value that each can be tested on its own."""
    labels, enough = population.tests.labels, _PLENTY[value] * fewest(precision)
    return [j for j in usable if (labels[population.tests_by_class[j]] == value).sum() >= enough]


def _with_pools(population: Population, usable: list[int], alone: Sequence[int]) -> list[_Group]:
    """Some classes on their own, and the others in pools of a similar ratio of reserved labels."""
    rest = sorted(set(usable) - set(alone))
    ratios = population.ratios[rest]
    least = _ALIKE * float(np.median(ratios)) if rest else 0.0
    pools = [tuple(j for j, far in zip(rest, ratios < least, strict=True) if far == k)
             for k in (0, 1)]  # fmt: skip
    groups = [*(_Group("class", (j,)) for j in alone)]
    return groups + [_Group("pooled", pool) for pool in pools if pool]


def _floor(group: _Group, value: int, precision: float) -> float:
    """The least confidence of a label that is filled in.

    Most labels are absent, so a pool of them would pass with labels that are hardly likely. Each of
    them is wrong at most twice as often as is allowed.
    """
    least = 1 - 2 * (1 - precision)
    if group.basis == "class" or value == PRESENT or least <= 0:
        return 0.0
    return max(math.log(least / (1 - least)), 0.0)


def _sample(population: Population, group: _Group, value: int) -> Sample:
    """The cells of a group of classes that are more likely to have a value than not."""
    return draw_sample(population, list(group.classes), value, least=0.0)


def _may_pass(population: Population, group: _Group, precision: float) -> bool:
    """Whether a class has enough cells for a threshold to pass if no reserved label is wrong.

    Of several classes together nothing is computed: they may.

    With thousands of classes most have too few, which this tells in a hundredth of the time that it
    takes to look at each threshold.
    """
    if len(group.classes) > 1:
        return True
    (j,) = group.classes
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
