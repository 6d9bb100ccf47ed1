"""Unknown labels filled in, with a guarantee of how many of them are correct."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.base.errors import InputError
from partlabel.judging.completion.assessment import Assessment, Scope, assess
from partlabel.judging.completion.doubts import (
    Doubtful,
    Suspect,
    estimate_wrong,
    find_doubtful,
    find_suspects,
)
from partlabel.judging.completion.held_labels import Kind, Mask, Scores
from partlabel.judging.completion.more_images import find_more
from partlabel.judging.completion.notes import (
    about_suspects,
    better_alternatives,
    classes_without_labels,
    more_images,
    other_splits,
    shifted_classes,
    tagged_images,
    unlike_images,
    why_nothing,
)
from partlabel.judging.completion.result import Completion, files_of
from partlabel.judging.scoring import Scored, filled_table, score
from partlabel.labels import ABSENT, MODEL, PRESENT, LabelTable
from partlabel.labels.mixed_tags import find_mixed_tags
from partlabel.metrics.sampling import Basis
from partlabel.training.out_of_fold import out_of_fold
from partlabel.training.run import Run

__all__ = [
    "Assessment",
    "Completion",
    "Doubtful",
    "Scope",
    "Suspect",
    "assess",
    "check_precision",
    "complete_run",
    "files_of",
    "find_suspects",
    "honest_logits",
]

_LITTLE = 0.5  # share of the unknown labels: if less is filled in, alternatives are named


def complete_run(
    run: Run,
    min_precision: float = 0.95,
    guarantee: Basis | None = None,
    kind: Kind | None = None,
    more: Path | None = None,
    *,
    despite_shift: bool = False,
) -> Completion:
    """Fill in the unknown labels of a run's own table. Known labels are never changed.

    Args:
        run: a finished run.
        min_precision: share of the labels filled in that must be correct, for the present and for
            the absent labels of each class (or of pooled classes), with a confidence of 95%.
        guarantee: the labels to test on, see ``basis`` of :func:`guarantee.find_guarantees`.
        kind: how to test, see :func:`held_labels.gather`.
        more: a folder whose images are completed too, if the labels do not mention them.
        despite_shift: complete images even if they are unlike those whose labels test them.
    """
    check_precision(min_precision)
    selection, scored = run.selection, score(run, run.selection.known)
    others = None if more is None else find_more(run, more)
    if others is not None:
        scored = _joined(scored, others)
    known = scored.table
    assessment = assess(
        run, scored, min_precision, guarantee, kind, folder=more, despite_shift=despite_shift
    )
    logits, values = assessment.logits, assessment.decide()
    unknown = assessment.evidence.unknown
    reason = why_nothing(run, min_precision)
    honest, trained = honest_logits(run, assessment)
    suspects = [] if reason else find_suspects(known, honest, trained, min_precision)
    wrong = None
    if suspects:
        tellable = ~trained & assessment.calibration.own & scored.readable[:, None]
        wrong = estimate_wrong(known, honest, tellable, min_precision)
    if reason:
        notes = [reason]
    else:
        share = float(np.mean(values[unknown] != 0)) if unknown.any() else 1.0
        alternatives = _alternatives(run, scored, assessment, share, guarantee)
        outside = np.setdiff1d(np.arange(len(selection.known)), selection.used)
        train = selection.train
        notes = [
            classes_without_labels(assessment, selection),
            better_alternatives(share, alternatives),
            shifted_classes(assessment, logits[train], unknown[train], known.classes),
            tagged_images(assessment),
            *(one.describe() for one in find_mixed_tags(selection.known)),
            other_splits(values[outside][unknown[outside]]),
            about_suspects(suspects, selection.known, wrong),
            *unlike_images(assessment, values),
            more_images(assessment, len(selection.known)),
        ]
    return Completion(
        _full_table(selection.labels, Scored(known, scored.scores, scored.broken), values, logits),
        {value: (values == value).sum(axis=0) for value in (PRESENT, ABSENT)},
        int((known.dense() == 0).sum()),
        suspects,
        assessment,
        [note for note in notes if note],
        find_doubtful(known, unknown & (values == 0), logits),
    )


def _joined(scored: Scored, more: Scored) -> Scored:
    """The images of a run, and new ones after them."""
    table = scored.table.merge(more.table)
    scores = np.concatenate([scored.scores, more.scores])
    return Scored(table, scores, [*scored.broken, *more.broken])


def check_precision(precision: float) -> None:
    """Raise an error unless a precision lies between 0 and 1."""
    if not 0 < precision < 1:
        hint = f"; did you mean {precision / 100:g}?" if 1 < precision < 100 else ""
        raise InputError(
            f"min_precision is {precision:g}; it must lie between 0 and 1"
            + (hint or ": no number of labels can show that all are correct")
        )


def honest_logits(run: Run, assessment: Assessment) -> tuple[Scores, Mask]:
    """Calibrated logits [n, C] to doubt known labels by, and where the model was trained on them.

    Training images have the scores of models that were not trained on them, where the run has such.
    """
    selection, logits = run.selection, assessment.logits.copy()
    trained = np.zeros(logits.shape, dtype=np.bool_)
    trained[selection.train] = selection.training.dense() != 0
    folds = out_of_fold(run)
    if folds is not None:
        if assessment.evidence.kind == "exact":  # otherwise they are such scores already
            logits[folds.rows] = assessment.calibration.logits(folds.scores)
        trained[folds.rows] = False
    return logits, trained


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


def _alternatives(
    run: Run, scored: Scored, assessment: Assessment, share: float, basis: Basis | None
) -> dict[str, float]:
    """The share of unknown labels that other options fill in; none if enough is filled in."""
    shares: dict[str, float] = {}
    if share >= _LITTLE:
        return shares
    unknown = assessment.evidence.unknown
    for option, precision, other in _weaker_guarantees(assessment.precision, basis):
        tested = assessment.evidence.kind
        decided = assess(
            run, scored, precision, other, tested, likeness=assessment.likeness
        ).decide()
        shares[option] = float(np.mean(decided[unknown] != 0))
        if precision < assessment.precision and shares[option] > share:
            break
    return shares


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
