"""How a review goes: what is known, guaranteed and missing per class, agreement and speed."""

import time
from dataclasses import dataclass

import numpy as np

from partlabel.labels import ABSENT, PRESENT
from partlabel.output.review.audit import Side
from partlabel.output.review.desk import Desk
from partlabel.output.review.verdicts import Asked, Value

_RECENT = 600.0  # seconds that the speed is measured over
_SHORT = 20.0  # seconds of work that say nothing about the speed
_PAUSE = 60.0  # seconds without a verdict that count as a pause


@dataclass(frozen=True)
class Agreement:
    """How often verdicts agree with the model."""

    agreed: int
    total: int


@dataclass(frozen=True)
class ClassProgress:
    """How the review of a class goes.

    Args:
        name: the class.
        new: whether a reviewer added it.
        present, absent, unknown: labels now, with verdicts.
        verdicts: labels with a verdict.
        conflicts: labels on which reviewers differ.
        filled_present, filled_absent: unknown labels that the run fills in with a guarantee.
        guarantee: lower bound of the precision of these, by value.
        chosen: agreement of chosen verdicts with the run, or with the head that learns.
        random: agreement of random verdicts with the scores that are tested.
        sides: what random verdicts show; empty if nothing is tested yet.
        tested: whether random labels are drawn.
        ready: whether a new class can be tested; ``why`` says what is missing.
    """

    name: str
    new: bool
    present: int
    absent: int
    unknown: int
    verdicts: int
    conflicts: int
    filled_present: int
    filled_absent: int
    guarantee: dict[str, float]
    chosen: Agreement
    random: Agreement
    sides: list[Side]
    tested: bool
    ready: bool
    why: str


def class_progress(desk: Desk, name: str) -> ClassProgress:
    """How the review of a class goes."""
    with desk.lock:
        labels, decided = desk.known(name), desk.decided(name).copy()
        conflicts = verdicts = 0
        agreed = {Asked.CHOSEN: [0, 0], Asked.RANDOM: [0, 0]}
        for image, one in desk.standings.of_class(name):
            row = desk.row_of[image]
            verdicts += 1
            conflicts += one.conflict
            if one.value != Value.SKIPPED:
                labels[row] = int(one.value or 0)
                decided[row] = 0
            for entry in one.latest:
                verdict = entry.verdict
                score = verdict.score if verdict.score is not None else verdict.learned
                if score is not None and verdict.value in (Value.PRESENT, Value.ABSENT):
                    agreed[verdict.asked][0] += (score >= 0.5) == (verdict.value == Value.PRESENT)
                    agreed[verdict.asked][1] += 1
        audit = desk.random.audit(name)
        is_new = name in desk.new_classes
        ready, why = desk.test_readiness(name) if is_new else (False, "")
        return ClassProgress(
            name,
            is_new,
            present=int((labels == PRESENT).sum()),
            absent=int((labels == ABSENT).sum()),
            unknown=int((labels == 0).sum()),
            verdicts=verdicts,
            conflicts=conflicts,
            filled_present=int(((decided == PRESENT) & (labels == 0)).sum()),
            filled_absent=int(((decided == ABSENT) & (labels == 0)).sum()),
            guarantee=dict(desk.opinions.guarantees.get(name, {})),
            chosen=Agreement(*agreed[Asked.CHOSEN]),
            random=Agreement(*agreed[Asked.RANDOM]),
            sides=[] if audit is None else audit.sides(desk.opinions.precision),
            tested=audit is not None,
            ready=ready,
            why=why,
        )


@dataclass(frozen=True)
class Speed:
    """The verdicts of a reviewer: all, and per minute of recent work if that was long enough."""

    reviewer: str
    verdicts: int
    per_minute: float | None


def speeds(desk: Desk) -> list[Speed]:
    """How fast each reviewer works; pauses of more than a minute do not count."""
    with desk.lock:
        history = [(act, undone) for _, act, undone in desk.standings.history()]
    numbers: dict[str, list[tuple[float, int]]] = {}
    for act, undone in history:
        if act.undoes is None and not undone:
            numbers.setdefault(act.reviewer, []).append((act.time, len(act.verdicts)))
    return [
        Speed(name, sum(n for _, n in acts), _per_minute(acts)) for name, acts in numbers.items()
    ]


def _per_minute(acts: list[tuple[float, int]]) -> float | None:
    """Verdicts per minute of the last ten minutes in which somebody worked."""
    since = min(time.time(), acts[-1][0]) - _RECENT
    recent = [(at, number) for at, number in acts if at >= since]
    times = np.array([at for at, _ in recent])
    work = float(np.minimum(np.diff(times), _PAUSE).sum())
    later = sum(number for _, number in recent[1:])
    return round(60 * later / work, 1) if work >= _SHORT else None
