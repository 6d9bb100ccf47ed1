"""Asks the run: scores, filled-in labels, suspects and features of all images. Needs torch."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError
from partlabel.images.batches import in_batches
from partlabel.judging.completion import Completion, complete_run
from partlabel.judging.scoring import score
from partlabel.labels import ABSENT, MODEL, PRESENT, LabelTable
from partlabel.metrics.calibration import logits
from partlabel.output.review.opinions import Opinions
from partlabel.training.embedded import inputs_of
from partlabel.training.run import Run

_WORDS = {PRESENT: "present", ABSENT: "absent"}
_BATCH = 256


def ask(
    run: Run,
    labels: LabelTable | None,
    precision: float,
    step: Callable[[str], object] = lambda what: None,
) -> tuple[Opinions, NDArray[np.float16] | None]:
    """What a run says about its own labels, or about others, and the features of their images.

    Args:
        run: a finished run.
        labels: the labels under review; None for those that the run was trained on.
        precision: as for :func:`complete_run`.
        step: called with what is being done.
    """
    if not run.has_images:
        raise FileError(
            run.folder,
            "was trained on features, and a page needs images to show; name them with --images",
        )
    images = run.images
    step("scoring the images")
    completion = complete_run(run, precision, all_scores=True)
    table = run.selection.labels if labels is None else labels
    missing = table.classes.missing(run.record.classes)
    table = table.with_more_classes(missing) if missing else table
    scores, decided = _scores(run, completion, table)
    own = run.selection.labels.ids.take(run.selection.train)
    trained = table.ids.find(own)
    learns = _why_not(run)
    vectors = None
    if not learns:
        step("reading the features")
        vectors = _features(run, table)
    suspects = _own_suspects(completion, table) if labels is None else None
    if suspects is None:
        suspects = _suspects(table, scores, precision)
    opinions = Opinions(
        table,
        scores,
        decided,
        suspects,
        _bounds(decided, table, precision),
        images,
        learns,
        completion.notes,
        precision,
        train=trained[trained >= 0],
    )
    return opinions, vectors


def _scores(
    run: Run, completion: Completion, table: LabelTable
) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Calibrated scores [C, n], and what is filled in [C, n].

    Only images of the run are filled in: the guarantee is about these.
    """
    known = table.dense()
    scores = np.full(table.shape, np.nan, dtype=np.float32)
    decided = np.zeros(table.shape, dtype=np.int8)
    completed = completion.table
    rows, columns = completed.ids.find(table.ids), completed.classes.find(table.classes)
    here, both = np.flatnonzero(rows >= 0), np.flatnonzero(columns >= 0)
    target, source = np.ix_(here, both), np.ix_(rows[here], columns[both])
    cells = completed.cells
    filled = np.zeros(completed.shape, dtype=np.int8)
    by_model = cells.sources_or_human() == MODEL
    filled[cells.rows[by_model], cells.columns[by_model]] = cells.values[by_model]
    scores[target], decided[target] = completed.scores()[source], filled[source]
    others = np.flatnonzero(rows < 0)
    if len(others):
        classes = table.classes.find(run.record.classes)
        scored = score(run, table.subset(others))
        calibrated = completion.assessment.calibration.logits(
            np.where(scored.readable[:, None], scored.scores, 0.5)
        )
        chances = np.where(scored.readable[:, None], 1 / (1 + np.exp(-calibrated)), np.nan)
        scores[np.ix_(others, classes)] = chances
    decided[known != 0] = 0
    return np.ascontiguousarray(scores.T), np.ascontiguousarray(decided.T)


def _bounds(
    decided: NDArray[np.int8], table: LabelTable, precision: float
) -> dict[str, dict[str, float]]:
    """The precision that is guaranteed, for each class and value that is filled in."""
    bounds: dict[str, dict[str, float]] = {}
    for value, word in _WORDS.items():
        for column in np.flatnonzero((decided == value).any(axis=1)).tolist():
            bounds.setdefault(table.classes[column], {})[word] = precision
    return bounds


def _own_suspects(completion: Completion, table: LabelTable) -> NDArray[np.int64]:
    """[m, 2] the suspects of a completion as positions in a table."""
    if not completion.suspects:
        return np.empty((0, 2), dtype=np.int64)
    rows = table.ids.find([one.image for one in completion.suspects])
    columns = table.classes.find([one.name for one in completion.suspects])
    return np.stack([rows, columns], axis=1)


def _suspects(
    table: LabelTable, scores: NDArray[np.float32], precision: float
) -> NDArray[np.int64]:
    """[m, 2] known labels whose value is as unlikely as a filled-in label must be likely."""
    cells = table.cells
    against = -cells.values * np.nan_to_num(logits(scores[cells.columns, cells.rows]))
    limit = max(math.log(precision / (1 - precision)), 0.0)
    order = np.flatnonzero((cells.values != 0) & (against > limit))
    order = order[np.argsort(-against[order], kind="stable")]
    return np.stack([cells.rows[order], cells.columns[order]], axis=1).astype(np.int64)


def _why_not(run: Run) -> str:
    """Why nothing can be learned on the page; empty if it can."""
    if run.features is None and run.settings.frozen != "all":
        return (
            "This run trained its backbone, so there are no cached features to learn on. Verdicts "
            "are kept, and the order stays that of the run."
        )
    return ""


def _features(run: Run, table: LabelTable) -> NDArray[np.float16]:
    """[n, D] features of all images, the means of their maps; zeros for a broken image."""
    inputs: Any = inputs_of(run, run.classifier(), table, evidence=False)
    vectors: NDArray[np.float16] | None = None
    for part in inputs.batches(in_batches(np.arange(len(table)), _BATCH), ("clean",), 0, 0):
        maps = part.views["clean"].float()
        means = maps.mean(dim=(2, 3)) if maps.ndim == 4 else maps
        if vectors is None:
            vectors = np.zeros((len(table), means.shape[1]), dtype=np.float16)
        vectors[part.rows] = np.clip(means.numpy(), -60000, 60000)
    return np.zeros((len(table), 1), dtype=np.float16) if vectors is None else vectors
