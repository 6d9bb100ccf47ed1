"""Unknown labels filled in, with a promise of how many of them are right."""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.base.errors import InputError
from partlabel.judging.completion.assessment import Assessment, Guarantee, assess
from partlabel.judging.completion.notes import (
    elsewhere,
    silent_classes,
    unlike,
    ways_to_more,
    why_nothing,
)
from partlabel.judging.scoring import Scored, Scores, filled_table, score
from partlabel.labels import ABSENT, MODEL, PRESENT, LabelTable
from partlabel.training.run import Run
from partlabel.training.selection import Selection, choose_rows

__all__ = ["Assessment", "Completion", "Suspect", "assess", "check_precision", "complete"]

_LITTLE = 0.5  # share of the unknown labels: where less is filled in, other ways are told


class Suspect(NamedTuple):
    """A known label that looks wrong, its calibrated score, and whether it was trained on."""

    image: str
    name: str
    value: int
    score: float
    trained: bool


@dataclass(frozen=True)
class Completion:
    """A table with unknown labels filled in, and what that rests on.

    Args:
        table: known labels as they were, filled ones with source ``model``; a calibrated score for
            each cell.
        filled: [C] number of unknown cells that became present, and absent.
        unknown: number of cells that were unknown before.
        suspects: known labels that look wrong; the least likely first.
        assessment: what held-out labels say.
    """

    table: LabelTable
    filled: dict[int, NDArray[np.int64]]
    unknown: int
    suspects: list[Suspect]
    assessment: Assessment

    @property
    def precision(self) -> float:
        """What was asked for."""
        return self.assessment.precision

    @property
    def share(self) -> float:
        """Of the unknown cells, how many are filled in."""
        return float(sum(number.sum() for number in self.filled.values())) / max(self.unknown, 1)


def complete(
    run: Run,
    min_precision: float = 0.95,
    guarantee: Guarantee | None = None,
    cache: str | os.PathLike[str] | None = None,
    note: Callable[[str], object] = lambda message: None,
) -> Completion:
    """Fill in the unknown labels of a run's own table. Known labels are never changed.

    Args:
        run: a finished run.
        min_precision: share of what is filled in that must be right, for each kind of label of each
            class (or of pooled classes), with a confidence of 95%.
        guarantee: see :func:`guarantee.make_promises`.
        cache: where features are kept.
        note: is told what the user should know.
    """
    check_precision(min_precision)
    chosen = choose_rows(run.labels, run.settings)
    scored = score(run, chosen.table, run.record.images, cache)
    table, known = chosen.table, chosen.table.dense()
    held = [rows[scored.readable[rows]] for rows in (chosen.val, chosen.reserved)]
    first, second = ((table.subset(rows), scored.scores[rows]) for rows in held)
    training = table.subset(chosen.train)
    assessment = assess(training, first, second, min_precision, guarantee, run.settings.seed)
    logits = assessment.calibration.logits(np.where(scored.readable[:, None], scored.scores, 0.5))
    values = np.where(scored.readable[:, None], assessment.promises.decide(logits), 0)
    filled = {v: ((known == 0) & (values == v)).sum(axis=0) for v in (PRESENT, ABSENT)}
    nothing = why_nothing(chosen, run.settings.reserve, min_precision)
    inside = np.concatenate([chosen.train, chosen.val, chosen.reserved])
    outside = np.setdiff1d(np.arange(len(table)), inside)
    unknown = (known == 0) & scored.readable[:, None]
    share, ways = float(np.mean(values[unknown] != 0)) if unknown.any() else 1.0, {}
    if not nothing and share < _LITTLE:
        for way, asked, kind in _other_ways(min_precision, guarantee):
            other = assess(training, first, second, asked, kind, run.settings.seed)
            ways[way] = float(np.mean(other.promises.decide(logits)[unknown] != 0))
            if asked < min_precision and ways[way] > share:
                break
    more = [
        silent_classes(assessment, chosen),
        ways_to_more(share, ways),
        unlike(assessment, logits[chosen.train], unknown[chosen.train], table.classes),
        elsewhere(values[outside][unknown[outside]]),
    ]
    for message in filter(None, [nothing] if nothing else more):
        note(message)
    return Completion(
        _full_table(run.labels, scored, values, logits),
        filled,
        int((known == 0).sum()),
        _suspects(chosen, values, logits, min_precision) if not nothing else [],
        assessment,
    )


def check_precision(precision: float) -> None:
    """Refuse what no precision can be."""
    if not 0 < precision < 1:
        hint = f"; did you mean {precision / 100:g}?" if 1 < precision < 100 else ""
        raise InputError(
            f"min_precision is {precision:g}; it must lie between 0 and 1"
            + (hint or ": no number of labels shows that all are right")
        )


def _full_table(
    given: LabelTable, scored: Scored, values: NDArray[np.int8], logits: Scores
) -> LabelTable:
    """Known labels as they are, also of classes that were not learned; else what was decided."""
    table, known = scored.table, scored.table.dense()
    sources = np.full(known.shape, MODEL, dtype=np.int8)
    sources[table.cells.rows, table.cells.columns] = table.cells.sources_or_human()
    human = (known != 0) & (sources != MODEL)
    full = np.where(known != 0, known, values).astype(np.int8)
    calibrated = np.where(scored.readable[:, None], expit(logits), np.nan)
    completed = filled_table(Scored(table, calibrated, scored.broken), full, human)
    left_out = [name for name in given.classes if name not in table.classes]
    return completed.merge(given.with_classes(left_out)) if left_out else completed


def _other_ways(
    precision: float, guarantee: Guarantee | None
) -> Iterator[tuple[str, float, Guarantee | None]]:
    """Ways to ask for less: what to say, which precision, on whose labels it rests."""
    if guarantee != "pooled":
        yield "--guarantee pooled (all classes together)", precision, "pooled"
    for lower in (0.9, 0.8, 0.7):
        if lower < precision:
            yield f"--min-precision {lower:g}", lower, guarantee


def _suspects(
    chosen: Selection, values: NDArray[np.int8], logits: Scores, precision: float
) -> list[Suspect]:
    """Known labels that would have been filled in the other way, or are as unlikely as that."""
    table, known = chosen.table, chosen.table.dense()
    limit = max(math.log(precision / (1 - precision)), 0.0)
    rows, columns = np.nonzero((known * values < 0) | ((known != 0) & (known * logits < -limit)))
    order = np.argsort(-np.abs(logits[rows, columns]), kind="stable")
    trained = np.isin(rows, chosen.train)
    return [
        Suspect(table.ids[i], table.classes[j], int(known[i, j]), float(expit(logits[i, j])), on)
        for i, j, on in zip(
            rows[order].tolist(), columns[order].tolist(), trained[order].tolist(), strict=True
        )
    ]
