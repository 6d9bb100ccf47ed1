"""Labels and scores of a run for new images, or for given features, block by block."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.base import processes
from partlabel.base.errors import FileError, InputError, some
from partlabel.images.folder import escaped
from partlabel.images.named_images import list_images
from partlabel.judging.scoring import (
    Scored,
    Scores,
    as_scores,
    check_room,
    filled_table,
    input_blocks,
    model_on_device,
    own_thresholds,
)
from partlabel.labels import LabelTable
from partlabel.labels.cells import Cells, Details, stacked
from partlabel.labels.formats import write_labels
from partlabel.labels.formats.parts import write_label_parts
from partlabel.models import Classifier
from partlabel.models.prediction import InputSource
from partlabel.training.embedded import inputs_of, with_evidence
from partlabel.training.inputs import caches_means, make_inputs, make_pictures
from partlabel.training.run import Run

Decide = Callable[[Scores], NDArray[np.int8]]


class PredictedLabels:
    """A value and a score for each image and class, computed block by block.

    Args:
        run: a finished run.
        model: its model.
        table: the images and classes, without labels.
        inputs: the inputs of the model for these images.
        threshold: a class is present from this score on; None for the run's own thresholds, one per
            class, chosen on validation labels.
        decide: gives the values [n, C] for scores [n, C] of the network, in place of a threshold.
        broken: messages about images that cannot be read; more are added while blocks are computed.

    Attributes:
        known: the number of labels that are not unknown, once all blocks are computed.
    """

    def __init__(
        self,
        run: Run,
        model: Classifier,
        table: LabelTable,
        inputs: InputSource,
        threshold: float | None,
        decide: Decide | None,
        broken: list[str],
    ) -> None:
        self.run, self.model, self.table, self.inputs = run, model, table, inputs
        self.threshold, self.decide, self.broken = threshold, decide, broken
        self.known = 0
        record, own = run.record.calibration, decide is None and threshold is None
        self._calibration = None if record is None else record.open()
        self._thresholds = own_thresholds(run) if own else np.empty(0)

    def parts(self) -> Iterator[LabelTable]:
        """The labels of consecutive images, from the first to the last."""
        self.known, done = 0, 0
        blocks = input_blocks(self.run, self.model, self.table, self.inputs, self.broken.append)
        for rows, logits in blocks:
            end = int(rows[-1]) + 1
            scores = np.full((end - done, len(self.table.classes)), np.nan)
            scores[rows - done] = as_scores(logits)
            yield self._part(done, scores)
            done = end
        if done < len(self.table):  # the last images cannot be read
            rest = len(self.table) - done, len(self.table.classes)
            yield self._part(done, np.full(rest, np.nan))

    def whole(self) -> LabelTable:
        """All labels in memory; it is an error if they do not fit."""
        check_room(self.table)
        cells = stacked([part.cells for part in self.parts()])
        return LabelTable.from_cells(self.table.ids, self.table.classes, cells)

    @processes.together()
    def save(
        self, path: str | os.PathLike[str], format: str | None = None, *, excel_safe: bool = False
    ) -> None:
        """Write a label file, part by part if the format allows it.

        Args:
            path, format, excel_safe: as in :func:`write_labels`.
        """
        nothing = np.zeros(0, dtype=np.int64)
        details = Details(scores=nothing.astype(np.float32), sources=nothing.astype(np.int8))
        cells = Cells(
            np.zeros(1, np.int64), nothing.astype(np.int32), nothing.astype(np.int8), details
        )
        header = LabelTable.from_cells([], self.table.classes, cells, check=False)
        if not write_label_parts(
            header, self.parts(), path, format, excel_safe=excel_safe, every_cell=True
        ):
            write_labels(self.whole(), path, format, excel_safe=excel_safe)

    def _part(self, first: int, scores: Scores) -> LabelTable:
        """The labels of images from the first on, given the scores of the network.

        The run's own thresholds are scores of the network. One that is given is compared with the
        scores that are shown, which are calibrated if they can be.
        """
        table = self.table.subset(np.arange(first, first + len(scores)))
        line = self._calibration
        shown = scores if line is None else line.probabilities(scores)
        if self.decide is not None:
            values = self.decide(scores)
        elif self.threshold is None:
            values = np.where(scores >= self._thresholds, 1, -1).astype(np.int8)
        else:
            values = np.where(shown >= self.threshold, 1, -1).astype(np.int8)
        part = filled_table(Scored(table, shown, []), values)
        self.known += int(np.count_nonzero(part.cells.values))
        return part


def predict_files(
    run: Run, images: Sequence[Path], threshold: float | None = None, decide: Decide | None = None
) -> PredictedLabels:
    """Labels and scores for images.

    Features are cached if that hardly changes scores, and for the answers of ``decide``, which were
    tested on cached ones.

    Args:
        images: image files, or folders, shards and lists of images.
        threshold, decide: as in :class:`PredictedLabels`.
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
    model, files, broken = model_on_device(run), list(paths.values()), nameless
    inputs: InputSource
    if run.record.teachers or decide is not None or caches_means(model, settings):
        maps = make_inputs(model, table, files, settings, run.execution, broken.append)
        inputs = with_evidence(run, table, maps)
    else:
        inputs = make_pictures(model.backbone, table, files, settings.seed)
    return PredictedLabels(run, model, table, inputs, threshold, decide, broken)


def predict_features(
    run: Run, threshold: float | None = None, decide: Decide | None = None
) -> PredictedLabels:
    """Labels and scores for all vectors of a run's file of features, as :func:`predict_files`."""
    assert run.features is not None
    table, model = _blank_table(run, run.features.ids), model_on_device(run)
    return PredictedLabels(run, model, table, inputs_of(run, model, table), threshold, decide, [])


def _blank_table(run: Run, ids: Sequence[str]) -> LabelTable:
    starts = np.zeros(len(ids) + 1, dtype=np.int64)
    cells = Cells(starts, np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8))
    return LabelTable.from_cells(ids, run.record.classes, cells)
