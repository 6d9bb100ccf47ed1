"""What a trained run thinks of images: scores and figures."""

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError, PartlabelWarning, count, some
from partlabel.images.folder import ImageFiles
from partlabel.images.pictures import Pictures
from partlabel.labels import HUMAN, MODEL, LabelTable
from partlabel.labels.cells import from_triples
from partlabel.learning.methods import METHODS, Method
from partlabel.metrics import Evaluation, top_recall
from partlabel.metrics import evaluate as measure
from partlabel.models import Classifier
from partlabel.models.prediction import InputSource, gather
from partlabel.models.prediction import predict as ask
from partlabel.training.inputs import make_inputs
from partlabel.training.run import Run
from partlabel.training.selection import by_humans, choose_rows, locate_all
from partlabel.training.train import task_of

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Scored:
    """Scores [n, C] of the rows of a table; NaN for images that cannot be decoded."""

    table: LabelTable
    scores: Scores
    broken: list[str]

    @property
    def readable(self) -> NDArray[np.bool_]:
        """[n] which images could be decoded."""
        return np.asarray(~np.isnan(self.scores).any(axis=1))


def score(
    run: Run,
    table: LabelTable,
    images: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
) -> Scored:
    """Score all images of a table with the classifier of a run."""
    model = run.classifier()
    return _score(run, model, table, locate_all(table, images), cache)


def _score(
    run: Run,
    model: Classifier,
    table: LabelTable,
    paths: Sequence[Path],
    cache: str | os.PathLike[str] | None = None,
    *,
    cached: bool = True,
) -> Scored:
    broken: list[str] = []
    settings = run.settings
    inputs: InputSource
    if cached:
        inputs = make_inputs(model, table, list(paths), settings, cache, broken.append)
    else:
        inputs = Pictures(list(table.ids), list(paths), settings.size, settings.seed)
    scores = np.full((len(table), len(model.classes)), np.nan)
    said = ask(
        model,
        inputs,
        np.arange(len(table)),
        settings.batch,
        settings.workers,
        seen=lambda found: broken.extend(found.broken.values()),
    )
    found, rows = gather(said)
    if len(rows):
        scores[rows] = found
    return Scored(table, scores, broken)


def evaluate(
    run: Run,
    table: LabelTable,
    images: str | os.PathLike[str],
    threshold: float | Scores = 0.5,
    cache: str | os.PathLike[str] | None = None,
) -> Evaluation:
    """The figures of a run on what people say in a table; the run must know its classes.

    Also ``top3_recall``, see :func:`metrics.top_recall`.
    """
    table, classes = _by_people(table), run.record.classes
    missing = [name for name in classes if name not in table.classes]
    if len(missing) == len(classes):
        raise InputError(f"the labels have none of the run's classes, such as {some(classes)}")
    if missing:
        table = table.with_more_classes(missing)
    scored = score(run, table.with_classes(classes), images, cache)
    rows = scored.readable
    scores, truth = scored.scores[rows], scored.table.dense()[rows]
    return measure(scores, truth, threshold).plus(top3_recall=top_recall(scores, truth, 3))


def evaluate_reserved(
    run: Run, threshold: float | Scores = 0.5, cache: str | os.PathLike[str] | None = None
) -> Evaluation:
    """The figures of a run on those of its own validation images that nothing was chosen on."""
    chosen = choose_rows(run.labels, run.settings)
    if not len(chosen.reserved):
        raise InputError(
            f"{run.folder}: reserved no images; train with validation images that have labels of "
            "both kinds, and without --reserve 0"
        )
    return evaluate(run, chosen.table.subset(chosen.reserved), run.record.images, threshold, cache)


def evaluate_estimates(run: Run, table: LabelTable, threshold: float = 0.5) -> Evaluation:
    """The figures of the method's own estimates on those training images that are in a table."""
    training, found = estimates(run)
    return measure(found, aligned(_by_people(table), training).dense(), threshold)


def _by_people(table: LabelTable) -> LabelTable:
    """The labels that people gave; if there are none, but some by a model, that is an error."""
    people = by_humans(table)
    if table.known and not people.known:
        raise InputError(
            "all of these labels were filled in by a model; measure on labels by people"
        )
    return people


def has_estimates(run: Run) -> bool:
    """Whether the method of a run has an opinion of its own on the training labels."""
    return METHODS[run.settings.method].estimates is not Method.estimates


def estimates(run: Run) -> tuple[LabelTable, Scores]:
    """The training table of a run, and what its method itself thinks of each cell [N, C]."""
    if not has_estimates(run):
        able = [name for name, kind in METHODS.items() if kind.estimates is not Method.estimates]
        raise InputError(
            f"{run.folder}: the method '{run.settings.method}' has no estimates of its own "
            f"(those with: {', '.join(able)}); leave out --estimates to evaluate the classifier"
        )
    task = task_of(run)
    found = run.method(task).estimates()
    assert found is not None
    return task.labels, found.cpu().double().numpy()


def aligned(table: LabelTable, like: LabelTable) -> LabelTable:
    """What a table says of the images and classes of another, unknown where it says nothing.

    >>> truth = LabelTable(["b", "c"], ["dog", "cat"], [[1, -1], [1, 1]])
    >>> aligned(truth, LabelTable(["a", "b"], ["cat", "cow"], [[0, 0], [1, 0]])).dense().tolist()
    [[0, 0], [-1, 0]]
    """
    at, columns = table.ids.find(like.ids), table.classes.find(like.classes)
    for kind, names, place in (("images", like.ids, at), ("classes", like.classes, columns)):
        if len(names) and not (place >= 0).any():
            raise InputError(
                f"the labels have none of the {kind} that the run was trained on, such as "
                f"{some(names[:3])}; names must be the same"
            )
    rows, to_new = np.flatnonzero(at >= 0), np.full(len(table.classes), -1, dtype=np.int64)
    to_new[columns[columns >= 0]] = np.flatnonzero(columns >= 0)
    cells = table.cells.take(at[rows])
    kept = cells.where((to_new[cells.columns] >= 0) & (cells.values != 0))
    made = from_triples(rows[kept.rows], to_new[kept.columns], kept.values, like.shape)
    return like.with_cells(made)


def predict(
    run: Run, images: Sequence[Path], threshold: float | None = None
) -> tuple[LabelTable, list[str]]:
    """Labels and scores for image files (or all images in folders), and what could not be read.

    Without a threshold the run's own are used, one per class, chosen on validation labels.
    """
    found: list[tuple[str, Path]] = []
    for path in images:
        if path.is_dir():
            files = ImageFiles(path)
            found += [(name, files.folder / name) for name in files.names]
        elif path.is_file():
            found.append((path.name, path))
        else:
            raise InputError(f"{path}: there is no such image or folder")
    if not found:
        raise InputError("there are no images to predict")
    times = Counter(name for name, _ in found)
    paths = {(name if times[name] == 1 else str(path)): path for name, path in found}
    classes = run.record.classes
    blank = np.zeros((len(paths), len(classes)), dtype=np.int8)
    table = LabelTable(list(paths), classes, blank)
    scored = _score(run, run.classifier(), table, list(paths.values()), cached=False)
    limits = own_thresholds(run) if threshold is None else threshold
    values = np.where(scored.scores >= limits, 1, -1).astype(np.int8)
    return filled_table(scored, values), scored.broken


def own_thresholds(run: Run) -> Scores:
    """The same as :func:`thresholds_or_half`, with a warning where a class has none of its own."""
    missing = [name for name, value in _thresholds(run) if value is None]
    if missing:
        warnings.warn(
            f"{count(len(missing), 'class', 'classes')} have no threshold of their own "
            f"({some(missing)}): validation images with labels of both kinds are needed to choose "
            "one. They are called present from 0.5 up, which may be far off; the scores still "
            "order images well",
            PartlabelWarning,
            stacklevel=2,
        )
    return thresholds_or_half(run)


def thresholds_or_half(run: Run) -> Scores:
    """[C] the thresholds that a run chose on its validation labels; 0.5 where it could not."""
    return np.asarray([0.5 if value is None else value for _, value in _thresholds(run)])


def _thresholds(run: Run) -> list[tuple[str, float | None]]:
    record = run.record
    found = record.thresholds or [None] * len(record.classes)
    return list(zip(record.classes, found, strict=True))


def filled_table(
    scored: Scored, values: NDArray[np.int8], human: NDArray[np.bool_] | None = None
) -> LabelTable:
    """A table with these values, the scores, and the model as source but where a human spoke."""
    table = scored.table
    rows, columns = np.divmod(np.arange(values.size), values.shape[1])
    spoken = np.zeros(values.shape, dtype=np.bool_) if human is None else human
    keep = scored.readable[:, None] | (table.dense() != 0)
    sources = np.where(spoken, HUMAN, MODEL).reshape(-1).astype(np.int8)
    cells = from_triples(
        rows,
        columns,
        np.where(keep, values, 0).reshape(-1).astype(np.int8),
        values.shape,
        scored.scores.reshape(-1).astype(np.float32),
        sources,
    )
    return LabelTable.from_cells(table.ids, table.classes, cells, table.splits)
