"""Unknown labels filled in, with a guarantee of how many of them are correct."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.base.errors import InputError
from partlabel.judging.completion.assessment import Assessment, assess
from partlabel.judging.completion.notes import (
    better_alternatives,
    classes_without_labels,
    other_splits,
    shifted_classes,
    why_nothing,
)
from partlabel.judging.completion.result import Completion, Suspect, files_of
from partlabel.judging.scoring import Scored, Scores, filled_table, score
from partlabel.labels import ABSENT, MODEL, PRESENT, LabelTable
from partlabel.metrics.guarantee import Basis
from partlabel.training.run import Run
from partlabel.training.selection import Selection, not_chosen

__all__ = [
    "Assessment",
    "Completion",
    "Suspect",
    "assess",
    "check_precision",
    "complete_run",
    "files_of",
    "find_suspects",
]

_LITTLE = 0.5  # share of the unknown labels: if less is filled in, alternatives are named


def complete_run(
    run: Run,
    min_precision: float = 0.95,
    guarantee: Basis | None = None,
) -> Completion:
    """Fill in the unknown labels of a run's own table. Known labels are never changed.

    Args:
        run: a finished run.
        min_precision: share of the labels filled in that must be correct, for the present and for
            the absent labels of each class (or of pooled classes), with a confidence of 95%.
        guarantee: the labels to test on, see ``basis`` of :func:`guarantee.find_guarantees`.
    """
    check_precision(min_precision)
    selection = run.selection
    table, known = selection.table, selection.table.dense()
    scored = score(run, table)
    held_out = [rows[scored.readable[rows]] for rows in (selection.val, selection.reserved)]
    val, reserved = ((not_chosen(table.subset(rows)), scored.scores[rows]) for rows in held_out)

    def assess_at(precision: float, basis: Basis | None) -> Assessment:
        return assess(selection.training, val, reserved, precision, basis, run.settings.seed)

    assessment = assess_at(min_precision, guarantee)
    readable = scored.readable[:, None]
    logits = assessment.calibration.logits(np.where(readable, scored.scores, 0.5))
    values = np.where(readable, assessment.guarantees.decide(logits), 0)
    unknown = (known == 0) & readable
    reason = why_nothing(selection, run.settings.reserve, min_precision)
    if reason:
        notes = [reason]
    else:
        share = float(np.mean(values[unknown] != 0)) if unknown.any() else 1.0
        alternatives: dict[str, float] = {}
        if share < _LITTLE:
            for option, precision, basis in _weaker_guarantees(min_precision, guarantee):
                decided = assess_at(precision, basis).guarantees.decide(logits)
                alternatives[option] = float(np.mean(decided[unknown] != 0))
                if precision < min_precision and alternatives[option] > share:
                    break
        outside = np.setdiff1d(np.arange(len(table)), selection.used)
        train = selection.train
        notes = [
            classes_without_labels(assessment, selection),
            better_alternatives(share, alternatives),
            shifted_classes(assessment, logits[train], unknown[train], table.classes),
            other_splits(values[outside][unknown[outside]]),
        ]
    return Completion(
        _full_table(selection.labels, scored, values, logits),
        {value: ((known == 0) & (values == value)).sum(axis=0) for value in (PRESENT, ABSENT)},
        int((known == 0).sum()),
        [] if reason else find_suspects(selection, values, logits, min_precision),
        assessment,
        [note for note in notes if note],
    )


def check_precision(precision: float) -> None:
    """Raise an error unless a precision lies between 0 and 1."""
    if not 0 < precision < 1:
        hint = f"; did you mean {precision / 100:g}?" if 1 < precision < 100 else ""
        raise InputError(
            f"min_precision is {precision:g}; it must lie between 0 and 1"
            + (hint or ": no number of labels can show that all are correct")
        )


def _full_table(
    labels: LabelTable, scored: Scored, values: NDArray[np.int8], logits: Scores
) -> LabelTable:
    """The known labels of all classes, also of those not learned, and the filled-in labels."""
    table, known = scored.table, scored.table.dense()
    sources = np.full(known.shape, MODEL, dtype=np.int8)
    sources[table.cells.rows, table.cells.columns] = table.cells.sources_or_human()
    human = (known != 0) & (sources != MODEL)
    full = np.where(known != 0, known, values).astype(np.int8)
    calibrated = np.where(scored.readable[:, None], expit(logits), np.nan)
    completed = filled_table(Scored(table, calibrated, scored.broken), full, human)
    left_out = [name for name in labels.classes if name not in table.classes]
    return completed.merge(labels.with_classes(left_out)) if left_out else completed


def _weaker_guarantees(
    precision: float, basis: Basis | None
) -> Iterator[tuple[str, float, Basis | None]]:
    """Other guarantees, each with the option to use, its precision and its basis."""
    if basis is None:
        yield "--guarantee class (each class on its own)", precision, "class"
    if basis != "pooled":
        yield "--guarantee pooled (all classes together)", precision, "pooled"
    for lower in (0.9, 0.8, 0.7):
        if lower < precision:
            yield f"--min-precision {lower:g}", lower, basis


def find_suspects(
    selection: Selection, values: NDArray[np.int8], logits: Scores, precision: float
) -> list[Suspect]:
    """Known labels that would have been filled in with the other value, or are as unlikely."""
    table, known = selection.table, selection.table.dense()
    limit = max(math.log(precision / (1 - precision)), 0.0)
    rows, columns = np.nonzero((known * values < 0) | ((known != 0) & (known * logits < -limit)))
    order = np.argsort(-np.abs(logits[rows, columns]), kind="stable")
    trained = np.isin(rows, selection.train)
    suspects = []
    for cell in order.tolist():
        i, j = int(rows[cell]), int(columns[cell])
        score = float(expit(logits[i, j]))
        suspects.append(
            Suspect(table.ids[i], table.classes[j], int(known[i, j]), score, bool(trained[cell]))
        )
    return suspects
