"""Unknown labels filled in, with a guarantee of how many of them are correct."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.judging.completion.assessment import Assessment, Scope, assess
from partlabel.judging.completion.completed_parts import Filling
from partlabel.judging.completion.doubts import (
    Doubtful,
    ShareWrong,
    Suspect,
    estimate_wrong,
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
    ways_to_present_labels,
    why_nothing,
)
from partlabel.judging.completion.prepared_scores import prepare
from partlabel.judging.completion.result import Completion, files_of
from partlabel.judging.image_scores import KeptScores, scores_of
from partlabel.labels import PRESENT
from partlabel.labels.cells import Cells
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
    "prepare",
    "suspects_of",
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
    all_scores: bool = False,
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
        all_scores: whether labels that stay unknown get a score too.
    """
    check_precision(min_precision)
    selection, scores = run.selection, scores_of(run, run.selection.known)
    others = None if more is None else find_more(run, more)
    if others is not None:
        assert isinstance(scores, KeptScores)  # there are image files, and no given features
        scores = scores.joined(others)
    material = prepare(run, scores, kind, folder=more, despite_shift=despite_shift)
    assessment = assess(material, min_precision, guarantee)
    reason = why_nothing(run, min_precision)
    suspects, wrong = ([], None) if reason else _suspects_and_wrong(run, assessment)
    if reason:
        notes = [reason]
    else:
        shares, present = _alternatives(assessment, guarantee)
        notes = [
            classes_without_labels(assessment, selection),
            better_alternatives(assessment.share, shares) or ways_to_present_labels(present),
            shifted_classes(assessment, selection.train),
            tagged_images(assessment),
            *(one.describe() for one in find_mixed_tags(selection.known)),
            other_splits(assessment),
            about_suspects(suspects, selection.known, wrong),
            *unlike_images(assessment),
            more_images(assessment, len(selection.known)),
        ]
    unknown = math.prod(scores.table.shape) - np.count_nonzero(scores.table.cells.values)
    return Completion(
        Filling(assessment, selection.labels, all_scores=all_scores),
        assessment.filled,
        int(unknown),
        suspects,
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


def suspects_of(run: Run, assessment: Assessment) -> list[Suspect]:
    """Known labels that look wrong, the least likely first."""
    return _suspects_and_wrong(run, assessment)[0]


def _suspects_and_wrong(
    run: Run, assessment: Assessment
) -> tuple[list[Suspect], ShareWrong | None]:
    """Known labels that look wrong, and the share of them that are, if it can be told."""
    material, (logits, trained) = assessment.material, _honest_logits(run, assessment)
    known, scores, precision = material.survey.known, material.scores, assessment.precision
    suspects = find_suspects(scores.table, known, logits, trained, precision)
    if not suspects:
        return suspects, None
    honest = ~trained & material.calibration.own[known.columns] & scores.readable[known.rows]
    return suspects, estimate_wrong(scores.table, known, logits, honest, precision)


def _honest_logits(run: Run, assessment: Assessment) -> tuple[Scores, Mask]:
    """[m] calibrated logits to doubt known labels by, and whether the model was trained on them.

    Training images have the scores of models that were not trained on them, where the run has such.
    """
    material, selection = assessment.material, run.selection
    known, table = material.survey.known, material.scores.table
    rows, classes = known.rows, len(table.classes)
    logits = np.nan_to_num(material.known_logits())
    trained = _are_in(selection.training.cells, selection.train, rows, known.columns, classes)
    folds = out_of_fold(run)
    if folds is not None:
        place = np.full(len(table), -1)
        place[folds.rows] = np.arange(len(folds.rows))
        inside = np.flatnonzero(place[rows] >= 0)
        trained[inside] = False
        if material.held.kind == "exact":  # otherwise they are such scores already
            columns = known.columns[inside]
            lines = material.calibration.of_class(columns)
            logits[inside] = lines.logits(folds.scores[place[rows[inside]], columns])
    return logits, trained


def _are_in(
    cells: Cells,
    images: NDArray[np.int64],
    rows: NDArray[np.int64],
    columns: NDArray[np.int32],
    classes: int,
) -> Mask:
    """[m] whether each of some cells is known among others, whose rows are these images."""
    inside = (images[cells.rows] * classes + cells.columns)[cells.values != 0]
    inside.sort(kind="stable")  # they nearly always are in order, and np.isin would not know
    wanted = rows * classes + columns
    place = np.minimum(np.searchsorted(inside, wanted), max(len(inside) - 1, 0))
    return inside[place] == wanted if len(inside) else np.zeros(len(wanted), dtype=np.bool_)


def _alternatives(
    assessment: Assessment, basis: Basis | None
) -> tuple[dict[str, float], dict[str, int]]:
    """What other options fill in, if little is filled in, or no present label.

    Returns the share of unknown labels that each fills in, and the number of present labels. The
    first are empty if enough is filled in, and the second if some present label is.
    """
    shares: dict[str, float] = {}
    present: dict[str, int] = {}
    is_little, has_present = assessment.share < _LITTLE, bool(assessment.filled[PRESENT].any())
    if not is_little and has_present:
        return shares, present
    for option, precision, other in _weaker_guarantees(assessment.precision, basis):
        result = assess(assessment.material, precision, other)
        if is_little:
            shares[option] = result.share
        if not has_present:
            present[option] = int(result.filled[PRESENT].sum())
        is_better = shares.get(option, 0) > assessment.share or present.get(option, 0) > 0
        if precision < assessment.precision and is_better:
            break
    return shares, present


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
