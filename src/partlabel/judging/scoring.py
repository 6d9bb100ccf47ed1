"""Scores of a trained run for images, and its figures on known labels."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError, InputError, PartlabelWarning, count, some
from partlabel.images.folder import escaped
from partlabel.images.named_images import list_images, open_images
from partlabel.images.stored import resolved
from partlabel.labels import HUMAN, MODEL, LabelTable
from partlabel.labels.cells import Details, from_triples
from partlabel.learning.extensions import EstimatesLabels
from partlabel.learning.methods import METHODS
from partlabel.metrics import Evaluation, evaluate, top_recall
from partlabel.models import Classifier
from partlabel.models.prediction import InputSource, collect_scores, iterate_logits
from partlabel.training.devices import find_device
from partlabel.training.embedded import inputs_of, with_evidence
from partlabel.training.inputs import caches_means, make_inputs, make_pictures
from partlabel.training.out_of_fold import out_of_fold
from partlabel.training.run import Run
from partlabel.training.run_split import by_humans

Scores = NDArray[np.float64]
Thresholds = float | Scores
Decide = Callable[[Scores], NDArray[np.int8]]


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
    model, broken = _model_on_device(run), list[str]()
    inputs = inputs_of(run, model, table, images, on_broken=broken.append)
    return _score(run, model, table, inputs, broken)


def _model_on_device(run: Run) -> Classifier:
    """The model of a run, on the device that the run is to use."""
    return run.classifier().to(find_device(run.execution.device))


def _score(
    run: Run, model: Classifier, table: LabelTable, inputs: InputSource, broken: list[str]
) -> Scored:
    """The scores for these inputs; ``broken`` has the messages of images that are broken."""
    predictions = iterate_logits(
        model,
        inputs,
        np.arange(len(table)),
        run.settings.batch,
        run.execution.workers,
        on_inputs=lambda part: broken.extend(part.broken.values()),
    )
    scores = np.full((len(table), len(model.classes)), np.nan)
    readable_scores, rows = collect_scores(predictions)
    if len(rows):
        scores[rows] = readable_scores
    return Scored(table, scores, broken)


def evaluate_run(
    run: Run, table: LabelTable, images: Path | None = None, threshold: Thresholds = 0.5
) -> Evaluation:
    """The figures of a run on the human labels of a table, which must have classes of the run.

    Also ``top3_recall``, see :func:`metrics.top_recall`.
    """
    return evaluate_scored(score_labelled(run, table, images), threshold)


def score_labelled(run: Run, table: LabelTable, images: Path | None = None) -> Scored:
    """Score the images of a table, with the human labels of the run's classes.

    Classes that the table does not have are unknown; it must have at least one of them.
    """
    table, classes = _human_labels(table), run.record.classes
    missing = [name for name in classes if name not in table.classes]
    if len(missing) == len(classes):
        raise InputError(f"the labels have none of the run's classes, such as {some(classes)}")
    if missing:
        table = table.with_more_classes(missing)
    return score(run, table.with_classes(classes), images)


def evaluate_scored(scored: Scored, threshold: Thresholds = 0.5) -> Evaluation:
    """The figures of scores against the labels of their table, as :func:`evaluate_run` has them."""
    rows = scored.readable
    scores, truth = scored.scores[rows], scored.table.dense()[rows]
    result = evaluate(scores, truth, threshold).named(list(scored.table.classes))
    return result.plus(top3_recall=top_recall(scores, truth, 3))


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


def label_files(
    run: Run, images: Sequence[Path], threshold: float | None = None, decide: Decide | None = None
) -> tuple[LabelTable, list[str]]:
    """Labels and scores for images, and messages of broken ones.

    Features are cached if that hardly changes scores, and for the answers of ``decide``, which were
    tested on cached ones.

    Args:
        images: image files, or folders, shards and lists of images.
        threshold: a class is present from this score on; None for the run's own thresholds, one per
            class, chosen on validation labels.
        decide: gives the values [n, C] for scores [n, C] of the network, in place of a threshold.
    """
    if run.record.features is not None:
        raise FileError(
            run.folder, "was trained on features; name a file of features with --features"
        )
    paths, nameless = list_images(images)
    if not paths:
        reason = f" ({nameless[0]})" if nameless else ""
        raise InputError(f"there are no images to predict in {some(map(escaped, images))}{reason}")
    table, settings = _blank_table(run, list(paths)), run.settings
    model, files, broken = _model_on_device(run), list(paths.values()), nameless
    inputs: InputSource
    if run.record.teachers or decide is not None or caches_means(model, settings):
        maps = make_inputs(model, table, files, settings, run.execution, broken.append)
        inputs = with_evidence(run, table, maps)
    else:
        inputs = make_pictures(model.backbone, table, files, settings.seed)
    scored = _score(run, model, table, inputs, broken)
    return _labelled(run, scored, threshold, decide), scored.broken


def label_features(
    run: Run, threshold: float | None = None, decide: Decide | None = None
) -> LabelTable:
    """Labels and scores for all vectors of a run's file of features, as :func:`label_files`."""
    assert run.features is not None
    table = _blank_table(run, run.features.ids)
    return _labelled(run, score(run, table), threshold, decide)


def _blank_table(run: Run, ids: Sequence[str]) -> LabelTable:
    classes = run.record.classes
    return LabelTable(ids, classes, np.zeros((len(ids), len(classes)), dtype=np.int8))


def _labelled(
    run: Run, scored: Scored, threshold: float | None, decide: Decide | None
) -> LabelTable:
    """Values by the run's own thresholds, or by one for all; scores are calibrated if they can be.

    The run's own thresholds are scores of the network. One that is given is compared with the
    scores that are shown.
    """
    record, calibrated = run.record.calibration, scored
    if record is not None:
        calibrated = Scored(scored.table, record.open().probabilities(scored.scores), scored.broken)
    if decide is not None:
        return filled_table(calibrated, decide(scored.scores))
    if threshold is None:
        present = scored.scores >= own_thresholds(run)
    else:
        present = calibrated.scores >= threshold
    return filled_table(calibrated, np.where(present, 1, -1).astype(np.int8))


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
