"""Scores of a trained run for images, and its figures on known labels."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base.allocation import file_limit
from partlabel.base.errors import FileError, InputError, PartlabelWarning, count, data_size, some
from partlabel.images.batches import Inputs
from partlabel.images.named_images import open_images
from partlabel.images.stored import resolved
from partlabel.judging.top_scores import TopRecall
from partlabel.labels import HUMAN, MODEL, LabelTable
from partlabel.labels.cells import Details, from_triples
from partlabel.learning.extensions import EstimatesLabels
from partlabel.learning.methods import METHODS
from partlabel.metrics import Evaluation, KnownCells, evaluate, evaluate_cells, top_recall
from partlabel.metrics.known_cells import joined
from partlabel.models import Classifier
from partlabel.models.prediction import InputSource, Predictions, iterate_logits, known_part
from partlabel.training.devices import find_device
from partlabel.training.embedded import inputs_of
from partlabel.training.out_of_fold import out_of_fold
from partlabel.training.run import Run
from partlabel.training.run_split import by_humans

Scores = NDArray[np.float64]
Thresholds = float | Scores


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


def score(run: Run, table: LabelTable, images: Path | None = None) -> Scored:
    """Score all images of a table with the classifier of a run.

    Args:
        images: where the images are; None for the run's own.
    """
    model, broken = model_on_device(run), list[str]()
    inputs = inputs_of(run, model, table, images, on_broken=broken.append)
    return score_inputs(run, model, table, inputs, broken)


def score_blocks(
    run: Run,
    table: LabelTable,
    images: Path | None = None,
    *,
    on_broken: Callable[[str], object] = lambda message: None,
) -> Predictions:
    """Rows [b] and logits [b, C] of all images of a table that can be read, block by block.

    Args:
        images: the folder of the images; None for the run's own.
        on_broken: called with a message per image that cannot be decoded.
    """
    model = model_on_device(run)
    inputs = inputs_of(run, model, table, images, on_broken=on_broken)
    return input_blocks(run, model, table, inputs, on_broken)


def model_on_device(run: Run) -> Classifier:
    """The model of a run, on the device that the run is to use."""
    return run.classifier().to(find_device(run.execution.device))


def input_blocks(
    run: Run,
    model: Classifier,
    table: LabelTable,
    inputs: InputSource,
    on_broken: Callable[[str], object],
) -> Predictions:
    """As :func:`score_blocks`, for inputs that are open already."""

    def note_broken(part: Inputs) -> None:
        for message in part.broken.values():
            on_broken(message)

    return iterate_logits(
        model,
        inputs,
        np.arange(len(table)),
        run.settings.batch,
        run.execution.workers,
        on_inputs=note_broken,
    )


def score_inputs(
    run: Run, model: Classifier, table: LabelTable, inputs: InputSource, broken: list[str]
) -> Scored:
    """The scores for these inputs; ``broken`` has the messages of images that are broken."""
    check_room(table)
    scores = np.full(table.shape, np.nan)
    for rows, logits in input_blocks(run, model, table, inputs, broken.append):
        scores[rows] = as_scores(logits)
    return Scored(table, scores, broken)


def as_scores(logits: Tensor) -> Scores:
    """Scores in double precision: in single precision, all logits above 17 would tie at 1."""
    return np.asarray(torch.sigmoid(logits.cpu().double()).numpy())


def check_room(table: LabelTable) -> None:
    """Raise an error if the scores of all images and classes of a table do not fit into memory."""
    size = 8 * math.prod(table.shape)
    if size > file_limit():
        raise InputError(
            f"the scores of {count(len(table), 'image')} and "
            f"{count(len(table.classes), 'class', 'classes')} need {data_size(size)} of memory, "
            f"more than half of what this computer has; use fewer images at a time"
        )


def evaluate_run(
    run: Run, table: LabelTable, images: Path | None = None, threshold: Thresholds = 0.5
) -> Evaluation:
    """The figures of a run on the human labels of a table, which must have classes of the run.

    Also ``top3_recall``, see :func:`metrics.top_recall`.
    """
    return measure(run, labels_to_measure(run, table), images, threshold).evaluation


@dataclass(frozen=True)
class Measured:
    """The figures of a run on known labels, and what they are computed from.

    Args:
        evaluation: the figures.
        cells: the known labels of the images that can be read, with their scores.
        readable: [n] which images can be read.
    """

    evaluation: Evaluation
    cells: KnownCells
    readable: NDArray[np.bool_]


def measure(
    run: Run, labels: LabelTable, images: Path | None = None, threshold: Thresholds = 0.5
) -> Measured:
    """Measure a run on labels of its classes, block by block: only known ones keep a score."""
    parts, top, readable = list[KnownCells](), TopRecall(3), np.zeros(len(labels), dtype=np.bool_)
    for rows, logits in score_blocks(run, labels, images):
        parts.append(known_part(rows, logits, labels))
        top.add(rows, logits, parts[-1])
        readable[rows] = True
    cells = joined(parts, len(labels.classes))
    result = evaluate_cells(cells, threshold).named(list(labels.classes))
    return Measured(result.plus(top3_recall=top.share), cells, readable)


def labels_to_measure(run: Run, table: LabelTable) -> LabelTable:
    """The images of a table, with the human labels of the run's classes.

    Classes that the table does not have are unknown; it must have at least one of them.
    """
    table, classes = _human_labels(table), run.record.classes
    missing = table.classes.missing(classes)
    if len(missing) == len(classes):
        raise InputError(f"the labels have none of the run's classes, such as {some(classes)}")
    if missing:
        table = table.with_more_classes(missing)
    return table.with_classes(classes)


def trained_on(run: Run, table: LabelTable, images: Path | None = None) -> int:
    """The number of images of a table that a run was trained on, whatever their names are."""
    training = run.selection.training.ids
    by_name = int((table.ids.find(training) >= 0).sum())
    if run.record.features is not None:
        return by_name
    try:
        found = open_images(run.images).locate(training)
    except FileError:  # the images of the training are gone
        return by_name
    trained = {resolved(image) for image in found if image is not None}
    measured = open_images(run.images if images is None else images).locate(table.ids)
    again = sum(image is not None and resolved(image) in trained for image in measured)
    return max(by_name, again)


def evaluate_reserved(run: Run, threshold: Thresholds = 0.5) -> Evaluation:
    """The figures of a run on its reserved images or labels, which nothing was chosen on."""
    selection = run.selection
    if selection.hidden is not None:
        tested = selection.tested
        rows = np.flatnonzero(np.diff(tested.cells.starts))
        return evaluate_run(run, tested.subset(rows), threshold=threshold)
    if not len(selection.reserved) and (folds := out_of_fold(run)) is not None:
        truth = by_humans(selection.table).dense(folds.rows)
        result = evaluate(folds.scores, truth, threshold).named(run.record.classes)
        return result.plus(top3_recall=top_recall(folds.scores, truth, 3))
    if not len(selection.reserved):
        raise InputError(
            f"{run.folder}: reserved no labels; train with known labels that are present and "
            "absent, and with --reserve 0.2"
        )
    return evaluate_run(run, selection.table.subset(selection.reserved), threshold=threshold)


def evaluate_estimates(run: Run, table: LabelTable, threshold: float = 0.5) -> Evaluation:
    """The figures of the method's own estimates on those training images that are in a table."""
    training, scores = label_estimates(run)
    truth = aligned(_human_labels(table), training)
    return evaluate(scores, truth.dense(), threshold).named(run.record.classes)


def _human_labels(table: LabelTable) -> LabelTable:
    """The labels that humans gave; it is an error if all labels were given by a model."""
    labels = by_humans(table)
    if table.known and not labels.known:
        raise InputError(
            "all of these labels were filled in by a model; measure on labels given by humans"
        )
    return labels


def has_estimates(run: Run) -> bool:
    """Whether the method of a run has its own estimates of the training labels."""
    return run.implements(EstimatesLabels)


def label_estimates(run: Run) -> tuple[LabelTable, Scores]:
    """The training table of a run, and its method's own estimates [N, C] of each label."""
    if not has_estimates(run):
        able = [name for name, kind in METHODS.items() if issubclass(kind, EstimatesLabels)]
        raise InputError(
            f"{run.folder}: the method '{run.settings.method}' has no estimates of its own "
            f"(those with: {', '.join(able)}); leave out --estimates to evaluate the classifier"
        )
    method = run.method()
    assert isinstance(method, EstimatesLabels)
    return run.selection.training, method.estimates().cpu().double().numpy()


def aligned(table: LabelTable, like: LabelTable) -> LabelTable:
    """The labels of a table for the images and classes of another, unknown where it has none.

    >>> truth = LabelTable(["b", "c"], ["dog", "cat"], [[1, -1], [1, 1]])
    >>> aligned(truth, LabelTable(["a", "b"], ["cat", "cow"], [[0, 0], [1, 0]])).dense().tolist()
    [[0, 0], [-1, 0]]
    """
    images, columns = table.ids.find(like.ids), table.classes.find(like.classes)
    for kind, names, positions in (
        ("images", like.ids, images),
        ("classes", like.classes, columns),
    ):
        if len(names) and not (positions >= 0).any():
            raise InputError(
                f"the labels have none of the {kind} that the run was trained on, such as "
                f"{some(names[:3])}; names must be the same"
            )
    rows = np.flatnonzero(images >= 0)
    new_columns = np.full(len(table.classes), -1, dtype=np.int64)
    new_columns[columns[columns >= 0]] = np.flatnonzero(columns >= 0)
    cells = table.cells.take(images[rows])
    kept = cells.where((new_columns[cells.columns] >= 0) & (cells.values != 0))
    moved = from_triples(rows[kept.rows], new_columns[kept.columns], kept.values, like.shape)
    return like.with_cells(moved)


def own_thresholds(run: Run) -> Scores:
    """As :func:`thresholds_or_half`, with a warning where a class has no threshold of its own."""
    missing = [name for name, value in _thresholds(run) if value is None]
    if missing:
        warnings.warn(
            f"{count(len(missing), 'class', 'classes')} have no threshold of their own "
            f"({some(missing)}): that takes validation images with present and absent labels. The "
            "threshold 0.5 is used for them, which may be far off; the order of the scores is not "
            "affected",
            PartlabelWarning,
            stacklevel=2,
        )
    return thresholds_or_half(run)


def thresholds_or_half(run: Run) -> Scores:
    """[C] the thresholds that a run chose on its validation labels; 0.5 where it could not."""
    return np.asarray([0.5 if value is None else value for _, value in _thresholds(run)])


def _thresholds(run: Run) -> list[tuple[str, float | None]]:
    record = run.record
    thresholds = record.thresholds or [None] * len(record.classes)
    return list(zip(record.classes, thresholds, strict=True))


def filled_table(
    scored: Scored, values: NDArray[np.int8], human: NDArray[np.bool_] | None = None
) -> LabelTable:
    """A table with these values and scores; the source is the model, except for human labels."""
    table = scored.table
    rows, columns = np.divmod(np.arange(values.size), values.shape[1])
    by_human = np.zeros(values.shape, dtype=np.bool_) if human is None else human
    keep = scored.readable[:, None] | (table.dense() != 0)
    sources = np.where(by_human, HUMAN, MODEL).reshape(-1).astype(np.int8)
    cells = from_triples(
        rows,
        columns,
        np.where(keep, values, 0).reshape(-1).astype(np.int8),
        values.shape,
        Details(
            scores=scored.scores.reshape(-1).astype(np.float32),
            sources=sources,
            **_dense_details(table, ("origins", "asked")),
        ),
    )
    return LabelTable.from_cells(table.ids, table.classes, cells, table.splits, table.origins)


def _dense_details(table: LabelTable, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """[n * C] these details of a table's cells, if it has them."""
    cells, dense = table.cells, {}
    position = cells.rows * len(table.classes) + cells.columns
    for name, column in cells.details.columns().items():
        if name in names:
            dense[name] = np.zeros(table.shape, dtype=column.dtype).reshape(-1)
            dense[name][position] = column
    return dense
