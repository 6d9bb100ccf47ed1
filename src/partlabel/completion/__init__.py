"""Unknown labels filled in, with a promise of how many of them are right."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.completion.assessment import Assessment, Guarantee, assess
from partlabel.completion.notes import elsewhere, silent_classes, unlike, why_nothing
from partlabel.errors import InputError
from partlabel.labels import ABSENT, MODEL, PRESENT, LabelTable
from partlabel.run import Run
from partlabel.scoring import Scored, Scores, filled_table, score
from partlabel.selection import choose_rows

__all__ = ["Assessment", "Completion", "Suspect", "assess", "complete"]


class Suspect(NamedTuple):
    """A known label that the model would have filled in the other way."""

    image: str
    name: str
    value: int
    score: float


@dataclass(frozen=True)
class Completion:
    """A table with unknown labels filled in, and what that rests on.

    Args:
        table: known labels as they were, filled ones with source ``model``; a calibrated score for
            each cell.
        filled: [C] number of unknown cells that became present, and absent.
        unknown: number of cells that were unknown before.
        suspects: known labels that look wrong; the most confident first.
        precision: that was asked for.
        assessment: what held-out labels say.
    """

    table: LabelTable
    filled: dict[int, NDArray[np.int64]]
    unknown: int
    suspects: list[Suspect]
    precision: float
    assessment: Assessment

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
    if not 0 < min_precision < 1:
        raise InputError(
            f"min_precision is {min_precision}; it must lie between 0 and 1 (no number of labels "
            "shows that all are right)"
        )
    given, chosen = run.labels, choose_rows(run.labels, run.settings)
    scored = score(run, chosen.table, run.record.images, cache)
    table, known = chosen.table, chosen.table.dense()
    held = [rows[scored.readable[rows]] for rows in (chosen.val, chosen.reserved)]
    first, second = ((table.subset(rows), scored.scores[rows]) for rows in held)
    training = table.subset(chosen.train)
    assessment = assess(training, first, second, min_precision, guarantee, run.settings.seed)
    logits = assessment.calibration.logits(np.where(scored.readable[:, None], scored.scores, 0.5))
    values = np.where(scored.readable[:, None], assessment.promises.decide(logits), 0)
    filled = {v: ((known == 0) & (values == v)).sum(axis=0) for v in (PRESENT, ABSENT)}
    calibrated = np.where(scored.readable[:, None], expit(logits), np.nan)
    sources = np.full(known.shape, MODEL, dtype=np.int8)
    sources[table.cells.rows, table.cells.columns] = table.cells.sources_or_human()
    human = (known != 0) & (sources != MODEL)
    full = np.where(known != 0, known, values).astype(np.int8)
    completed = filled_table(Scored(table, calibrated, scored.broken), full, human)
    left_out = [name for name in given.classes if name not in table.classes]
    if left_out:
        completed = completed.merge(given.with_classes(left_out))
    nothing = why_nothing(chosen, run.settings.reserve, min_precision)
    inside = np.concatenate([chosen.train, chosen.val, chosen.reserved])
    outside = np.setdiff1d(np.arange(len(table)), inside)
    unknown = (known == 0) & scored.readable[:, None]
    more = [
        silent_classes(assessment, chosen, min_precision),
        unlike(assessment, logits[chosen.train], unknown[chosen.train], table.classes),
        elsewhere(values[outside][unknown[outside]]),
    ]
    for message in filter(None, [nothing] if nothing else more):
        note(message)
    return Completion(
        completed,
        filled,
        int((known == 0).sum()),
        _suspects(table, known, values, logits),
        min_precision,
        assessment,
    )


def _suspects(
    table: LabelTable, known: NDArray[np.int8], values: NDArray[np.int8], logits: Scores
) -> list[Suspect]:
    rows, columns = np.nonzero(known * values < 0)
    order = np.argsort(-np.abs(logits[rows, columns]), kind="stable")
    return [
        Suspect(table.ids[i], table.classes[j], int(known[i, j]), float(expit(logits[i, j])))
        for i, j in zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    ]
