"""The cells of a run that can be asked about, and the ways to choose among them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.base.randomness import keys
from partlabel.judging.scoring import Scored
from partlabel.judging.suggestion.allotment import abundance, allot, rarity
from partlabel.judging.suggestion.by_class import CellsByClass
from partlabel.judging.suggestion.information import (
    FeaturesOf,
    KnownCells,
    information_weights,
    most_informative,
    posterior_of,
)
from partlabel.judging.suggestion.orderings import ORDERINGS, ClassCells, draws_of
from partlabel.judging.suggestion.posterior import Posterior, choose_spread, leave_one_out
from partlabel.labels import HUMAN, PRESENT, RANDOM
from partlabel.metrics.calibration import logits as logits_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_PER_CLASS = ("margin",)  # orderings whose values can be compared within a class only
_POOL = 20  # images per question for which the gain is computed exactly


class Picked(NamedTuple):
    """Cells in the order in which they should be asked for: rows, columns and gains [k]."""

    rows: Integers
    columns: Integers
    gains: Floats


@dataclass(frozen=True)
class Askable:
    """The images that a run was trained on, with scores and with all labels that are known.

    Args:
        scored: the scores of these images.
        taken: cells (row * classes + column) that are asked for already.
    """

    scored: Scored
    taken: frozenset[int] = frozenset()

    @cached_property
    def unknown(self) -> Integers:
        """[C] the number of cells of each class that can be asked about."""
        table = self.scored.table
        readable = self.scored.readable
        known = np.bincount(
            table.cells.columns[(table.cells.values != 0) & readable[table.cells.rows]],
            minlength=len(table.classes),
        )
        taken = np.bincount(
            np.array([cell % len(table.classes) for cell in self.taken], dtype=np.int64),
            minlength=len(table.classes),
        )
        return np.asarray(readable.sum() - known - taken)

    @cached_property
    def open_images(self) -> NDArray[np.bool_]:
        """[n] whether each image can be decoded and has an unknown label."""
        table = self.scored.table
        known = np.bincount(table.cells.rows[table.cells.values != 0], minlength=len(table))
        return np.asarray((known < len(table.classes)) & self.scored.readable)

    def unknown_besides(self, images: Integers) -> Integers:
        """[C] the number of cells of each class in other images that can be asked about."""
        inside = np.count_nonzero(self.scored.table.dense(images) == 0, axis=0)
        return np.asarray(self.unknown - inside)

    @cached_property
    def _images(self) -> NDArray[np.uint64]:
        return keys(self.scored.table.ids)

    @cached_property
    def _by_class(self) -> CellsByClass:
        return CellsByClass(self.scored.table)

    @cached_property
    def present(self) -> Integers:
        """[C] known present labels."""
        cells = self.scored.table.cells
        of_class = cells.columns[cells.values == PRESENT]
        return np.bincount(of_class, minlength=len(self.scored.table.classes))

    def cells_of(self, column: int) -> ClassCells:
        """The unknown cells of a class."""
        table = self.scored.table
        cells, classes = table.cells, len(table.classes)
        is_open = self.scored.readable.copy()
        own = self._by_class.positions(column)
        is_open[self._by_class.rows[own[cells.values[own] != 0]]] = False
        is_open[[cell // classes for cell in self.taken if cell % classes == column]] = False
        rows = np.flatnonzero(is_open)
        name = keys([table.classes[column]])
        logits = logits_of(self.scored.scores[rows, column])
        return ClassCells(column, rows, logits, draws_of("asked", self._images[rows], name))

    def known_of(self, column: int) -> KnownCells:
        """The known labels of a class that the run was trained on."""
        cells, own = self.scored.table.cells, self._by_class.positions(column)
        trained = (cells.values[own] != 0) & (cells.sources_or_human()[own] == HUMAN)
        trained &= cells.asked_or_not()[own] != RANDOM
        own = own[trained & self.scored.readable[self._by_class.rows[own]]]
        rows = self._by_class.rows[own]
        return KnownCells(rows, cells.values[own], logits_of(self.scored.scores[rows, column]))

    def expected(self) -> Floats:
        """[C] how many unknown labels of each class the scores expect to be present."""
        classes = range(len(self.unknown))
        return np.array([expit(self.cells_of(column).logits).sum() for column in classes])


def by_ordering(askable: Askable, name: str, budget: int) -> Picked:
    """The cells with the highest priorities: of all, or the same number per class."""
    classes, ordering = len(askable.unknown), ORDERINGS[name]
    numbers = np.minimum(askable.unknown, budget)
    if name in _PER_CLASS:
        numbers = allot(budget, np.ones(classes), askable.unknown)
    parts = []
    for column in np.flatnonzero(numbers).tolist():
        cells = askable.cells_of(column)
        priorities = ordering(cells)
        best = np.argsort(-priorities, kind="stable")[: numbers[column]]
        parts.append((cells.rows[best], np.full(len(best), column), priorities[best]))
    return _first(parts, budget)


def by_information(
    askable: Askable, features: FeaturesOf, budget: int, *, total: bool = False
) -> Picked:
    """The cells that tell most about their classes.

    Args:
        total: whether all present labels count the same; else all classes do.
    """
    weights = abundance(askable.expected()) if total else rarity(askable.present)
    numbers = allot(budget, weights, askable.unknown)
    parts = []
    for column in np.flatnonzero(numbers).tolist():
        cells = askable.cells_of(column)
        posterior = posterior_of(askable.known_of(column), features)
        chosen = most_informative(cells, posterior, features, int(numbers[column]), lean=total)
        gains = chosen.gains
        parts.append((cells.rows[chosen.positions], np.full(len(gains), column), gains))
    return _first(parts, budget)


def _first(parts: list[tuple[Integers, Integers, Floats]], budget: int) -> Picked:
    """The cells with the highest gains of all parts."""
    rows, columns, gains = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(-gains, kind="stable")[:budget]
    return Picked(rows[order], columns[order], gains[order])


def suspicious(askable: Askable, features: FeaturesOf, budget: int) -> Picked:
    """The known labels that look most wrong, by scores without each label itself.

    The gain is the probability that a label is wrong.
    """
    parts = []
    for column in np.flatnonzero(askable.present).tolist():
        known = askable.known_of(column)
        variance = _variance(posterior_of(known, features), features, known.rows)
        left_out = leave_one_out(known.logits, known.values, variance)
        wrong = expit(-known.values * left_out)
        parts.append((known.rows, np.full(len(wrong), column), wrong))
    return _first(parts, budget)


def _variance(posterior: Posterior, features: FeaturesOf, rows: Integers) -> Floats:
    steps = range(0, len(rows), 4096)
    return np.concatenate(
        [posterior.of(features(rows[start : start + 4096])).variance for start in steps]
    )


def whole_images(askable: Askable, features: FeaturesOf, budget: int) -> tuple[Integers, Floats]:
    """The images whose unknown labels together tell most, and the gain of each.

    Classes with few known present labels weigh more. Images like those chosen before count less.
    """
    weights = rarity(askable.present)
    weights = weights / weights.mean()
    rough = np.zeros(len(askable.scored.table))
    for cells, weight in _classes(askable, weights):
        rough[cells.rows] += weight * information_weights(cells.logits)
    pool = np.argsort(-rough, kind="stable")[: max(_POOL * budget, 500)]
    pool = np.sort(pool[rough[pool] > 0])
    gains = np.zeros(len(pool))
    for cells, weight in _classes(askable, weights):
        inside = np.isin(cells.rows, pool)
        rows, information = cells.rows[inside], information_weights(cells.logits[inside])
        posterior = posterior_of(askable.known_of(cells.column), features)
        variance = _variance(posterior, features, rows) if len(rows) else np.zeros(0)
        gains[np.searchsorted(pool, rows)] += weight * np.log1p(information * variance) / 2
    vectors = features(pool)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    nothing = Posterior(vectors[:0], np.zeros(0), prior=2.0)  # each image has a variance of 1
    alike = nothing.of(vectors / np.maximum(length, 1e-12))
    chosen = choose_spread(alike, np.ones(len(pool)), budget, gains)
    return pool[chosen.positions], gains[chosen.positions]


def _classes(askable: Askable, weights: Floats) -> Iterator[tuple[ClassCells, float]]:
    for column in np.flatnonzero(askable.unknown).tolist():
        yield askable.cells_of(column), float(weights[column])
