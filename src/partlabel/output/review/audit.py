"""Random labels of a class: what to draw next, and what the answers guarantee.

The unknown labels of a class, as they were when the plan was made, are divided by what the model
says of them: present or absent, and how confidently. Labels are drawn at random within these
strata. A guarantee is shown for the most confident stratum first, then for the two most confident
ones together, and so on. Each step is tested with bounds that hold at all times, and a step counts
only if all earlier ones passed. So the chance that any guarantee of one class and value is ever
wrong is at most 5% (a fixed sequence of tests, each valid at all times).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.randomness import Keys, key, uniform
from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.anytime import Sampled, least_precision, next_stratum, still_needed
from partlabel.output.review.standing import Entry, standing
from partlabel.output.review.verdicts import Asked

BANDS = (0.99, 0.95, 0.8, 0.5)
"""The confidence that a label of each stratum has at least, the most confident stratum first."""

_SIDES = (PRESENT, ABSENT)
SMALL = 100
"""A step with fewer labels is joined with the next."""


@dataclass(frozen=True)
class Side:
    """What random answers show about the present, or the absent, labels of a class.

    Args:
        value: PRESENT or ABSENT.
        size: unknown labels that the model takes for this value.
        drawn: how many of these were drawn at random.
        open: how many of these wait for an answer; until then they count as wrong.
        right: how many the model got right.
        confidence: the score that a label of the tested step has at least.
        tested: labels in the tested step.
        precision: lower bound of the share that is right, in the tested step.
        guaranteed: labels in the last step that passed; 0 if none did.
        limit: the score that a label of this step has at least; None if none passed.
        missing: further right answers that the tested step needs; -1 if none can help.
    """

    value: int
    size: int
    drawn: int
    open: int
    right: int
    confidence: float
    tested: int
    precision: float
    guaranteed: int
    limit: float | None
    missing: int


@dataclass(frozen=True)
class Plan:
    """The strata of a class, fixed before the first label is drawn.

    Args:
        id: a hash of what the strata were made of.
        scores: [n] calibrated scores.
        unknown: [n] whether a label belongs to the population.
        seed: of the draws.
    """

    id: str
    scores: NDArray[np.float32]
    unknown: NDArray[np.bool_]
    seed: int
    _orders: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    @cached_property
    def strata(self) -> NDArray[np.int8]:
        """[n] the stratum of each label, -1 outside the population.

        Strata 0 to 3 are labels that the model takes for present, 4 to 7 for absent.
        """
        return stratify(self.scores, self.unknown)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """[8] the number of labels in each stratum."""
        return np.bincount(self.strata[self.strata >= 0], minlength=2 * len(BANDS))

    def in_order(self, stratum: int, image_keys: Keys) -> NDArray[np.int64]:
        """The rows of a stratum in the random order in which they are drawn."""
        if stratum not in self._orders:
            rows = np.flatnonzero(self.strata == stratum)
            draw = uniform(key(self.seed, "draw", self.id), image_keys[rows])
            self._orders[stratum] = rows[np.argsort(draw)]
        return self._orders[stratum]


def stratify(scores: NDArray[np.float32], unknown: NDArray[np.bool_]) -> NDArray[np.int8]:
    """[n] the stratum of each label, -1 if it is not unknown or has no score.

    >>> scores = np.array([0.995, 0.6, 0.03, np.nan], dtype=np.float32)
    >>> stratify(scores, np.array([True, True, True, True])).tolist()
    [0, 3, 5, -1]
    """
    scored = unknown & ~np.isnan(scores)
    is_present = scores >= 0.5
    confidence = np.where(is_present, scores, 1 - scores)
    band = np.searchsorted(-np.array(BANDS), -np.nan_to_num(confidence, nan=1.0), side="left")
    stratum = np.minimum(band, len(BANDS) - 1) + np.where(is_present, 0, len(BANDS))
    return np.where(scored, stratum, -1).astype(np.int8)


def side_of(stratum: int) -> int:
    """The value that the model takes the labels of a stratum for."""
    return PRESENT if stratum < len(BANDS) else ABSENT


@dataclass
class Audit:
    """The labels of one class that were drawn at random, and the answers."""

    plan: Plan
    drawn: dict[int, int] = field(default_factory=dict)
    """The stratum of each row that was drawn."""
    answers: dict[int, bool] = field(default_factory=dict)
    """Whether the model got the answered rows right."""
    _last: tuple[object, list["Test"]] | None = None

    def add(self, row: int, stratum: int) -> None:
        """Note a label that was drawn."""
        self.drawn[row] = stratum

    def answer(self, row: int, entries: Iterable[Entry]) -> None:
        """Note what reviewers say about a label that was drawn."""
        random = [one for one in entries if one.verdict.asked == Asked.RANDOM]
        if not random:
            self.answers.pop(row, None)
            return
        # skipped by one of the reviewers, or in conflict: wrong
        values = {one.verdict.value for one in standing(random).latest}
        self.answers[row] = values == {side_of(self.drawn[row])}

    def waits(self, row: int) -> bool:
        """Whether a label was drawn and has no answer."""
        return row in self.drawn and row not in self.answers

    @property
    def open(self) -> list[int]:
        """The rows that were drawn and wait for an answer, the oldest first."""
        return [row for row in self.drawn if row not in self.answers]

    def sampled(self, rows: Iterable[int] | None = None) -> Sampled:
        """Drawn and wrong labels of all strata; what waits for an answer counts as wrong.

        Args:
            rows: only these; None for all that were drawn.
        """
        drawn, wrong = np.zeros((2, 2 * len(BANDS)))
        for row in self.drawn if rows is None else rows:
            stratum = self.drawn[row]
            drawn[stratum] += 1
            wrong[stratum] += not self.answers.get(row, False)
        return Sampled(self.plan.sizes.astype(np.float64), drawn, wrong)

    def next(self, precision: float, image_keys: Keys, number: int) -> list[tuple[int, int]]:
        """Rows to draw next, each with its stratum; they are not noted yet.

        Draws alternate between the values, and keep to the proportions of the strata of the step
        that is tested. A value of which all steps passed needs no more draws.
        """
        sampled, chosen = self.sampled(), list[tuple[int, int]]()
        useful = [test for test in self.tests(precision) if test.passed < len(test.steps)]
        while useful and len(chosen) < number:
            test = min(useful, key=lambda one: sampled.drawn[_strata(one.value)].sum())
            part = _strata(test.value)[: test.steps[test.tested] + 1]
            place = next_stratum(Sampled(*(array[part] for array in sampled)))
            if place < 0:
                useful.remove(test)
                continue
            stratum = int(part[place])
            order = self.plan.in_order(stratum, image_keys)
            chosen.append((int(order[int(sampled.drawn[stratum])]), stratum))
            sampled.drawn[stratum] += 1
        return chosen

    def sides(self, precision: float) -> list[Side]:
        """What the answers show, for present and for absent labels."""
        tests = self.tests(precision)
        # the answers that wait are among those that are missing
        answered = self.sampled(self.answers)
        unions = [_union_of(answered, one.value, one.steps[one.tested]) for one in tests]
        now = zip(*unions, strict=True)
        missing = still_needed(Sampled(*map(np.stack, now)), precision)
        return [self._side(one, int(more)) for one, more in zip(tests, missing, strict=True)]

    def _steps(self, value: int) -> list[int]:
        """The last stratum of each step, counted within the value."""
        sizes = self.plan.sizes[_strata(value)]
        together = np.cumsum(sizes)
        steps = [k for k in range(len(BANDS)) if sizes[k] and together[k] >= SMALL]
        occupied = np.flatnonzero(sizes)
        last = int(occupied[-1]) if len(occupied) else len(BANDS) - 1
        return steps if steps and steps[-1] == last else [*steps, last]

    def guaranteed(self, side: Side) -> NDArray[np.int64]:
        """The rows of the labels that a side guarantees."""
        if side.limit is None:
            return np.empty(0, dtype=np.int64)
        last = BANDS.index(side.limit)
        return np.flatnonzero(np.isin(self.plan.strata, _strata(side.value)[: last + 1]))

    def tests(self, precision: float) -> list["Test"]:
        """The tests of both values, by what is known now."""
        state = precision, len(self.drawn), tuple(self.answers.items())
        if self._last is None or self._last[0] != state:
            self._last = state, [self._test(value, precision) for value in _SIDES]
        return self._last[1]

    def _test(self, value: int, precision: float) -> "Test":
        steps, sampled = self._steps(value), self.sampled()
        parts = zip(*(_union_of(sampled, value, step) for step in steps), strict=True)
        unions = Sampled(*map(np.stack, parts))
        bounds = least_precision(unions, precision)
        return Test(value, steps, unions, bounds, int(np.argmin([*(bounds >= precision), False])))

    def _side(self, test: "Test", missing: int) -> Side:
        part, sizes = _strata(test.value), test.unions.size.sum(axis=-1)
        rows = [row for row, stratum in self.drawn.items() if stratum in part]
        last = test.passed - 1
        return Side(
            test.value,
            size=int(self.plan.sizes[part].sum()),
            drawn=len(rows),
            open=sum(row not in self.answers for row in rows),
            right=sum(self.answers.get(row, False) for row in rows),
            confidence=BANDS[test.steps[test.tested]],
            tested=int(sizes[test.tested]),
            precision=float(test.bounds[test.tested]),
            guaranteed=int(sizes[last]) if test.passed else 0,
            limit=BANDS[test.steps[last]] if test.passed else None,
            missing=missing,
        )


class Test(NamedTuple):
    """The steps of one value, the bound of each, and how many passed before the first failure."""

    value: int
    steps: list[int]
    unions: Sampled
    bounds: NDArray[np.float64]
    passed: int

    @property
    def tested(self) -> int:
        """The first step that has not passed, or the last one."""
        return min(self.passed, len(self.steps) - 1)


def _strata(value: int) -> NDArray[np.int64]:
    return np.arange(len(BANDS)) + (0 if value == PRESENT else len(BANDS))


def _union_of(sampled: Sampled, value: int, last: int) -> Sampled:
    """The strata of a value up to one of them; the others have size 0."""
    inside = np.arange(len(BANDS)) <= last
    return Sampled(*(np.where(inside, array[_strata(value)], 0.0) for array in sampled))
