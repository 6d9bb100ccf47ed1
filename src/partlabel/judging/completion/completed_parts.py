"""The completed table, in parts of consecutive images: known labels, and those filled in."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from partlabel.images.batches import Rows
from partlabel.judging.completion.assessment import Assessment
from partlabel.judging.completion.by_origin import FilledCells
from partlabel.judging.completion.doubts import DoubtfulCells
from partlabel.labels import MODEL, LabelTable
from partlabel.labels.cells import DEFAULTS, Cells, Details, concatenate, from_triples, stacked


class Filling:
    """Fills in unknown labels, block by block.

    Args:
        assessment: what may be filled in.
        labels: all labels of the run, also of classes that were not learned.
        all_scores: whether cells that stay unknown get a score too.
    """

    def __init__(
        self, assessment: Assessment, labels: LabelTable, *, all_scores: bool = False
    ) -> None:
        self.assessment, self.all_scores = assessment, all_scores
        self.table = assessment.material.scores.table
        learned = set(self.table.classes)
        others = [name for name in labels.classes if name not in learned]
        self.others = labels.with_classes(others) if others else None
        self.classes = [*self.table.classes, *others]
        # a table without any label that has an origin has no list of them
        parts = [self.table, *([] if self.others is None else [self.others])]
        with_origins = [part.origins for part in parts if len(part.origins)]
        self.origins = with_origins[0] if with_origins else self.table.origins
        self.doubtful, self.is_done = DoubtfulCells(), False
        self.counted = FilledCells(assessment)

    def known_labels(self) -> int:
        """The number of labels that were known before, of all classes."""
        tables = [self.table, *([] if self.others is None else [self.others])]
        return sum(int(np.count_nonzero(table.cells.values)) for table in tables)

    def parts(self) -> Iterator[LabelTable]:
        """The completed table from the first image to the last.

        Afterwards, ``doubtful`` has the unknown cells that are not filled in, and ``counted`` the
        numbers of those that are.
        """
        self.doubtful, self.counted = DoubtfulCells(), FilledCells(self.assessment)
        done = 0
        for rows, logits, values in self.assessment.blocks():
            end = int(rows[-1]) + 1
            yield self._part(np.arange(done, end), rows, logits, values)
            done = end
        if done < len(self.table):  # the last images cannot be read
            yield self._part(np.arange(done, len(self.table)))
        self.is_done = True

    def whole(self) -> LabelTable:
        """All parts as one table in memory."""
        cells = stacked([part.cells for part in self.parts()])
        table = self.table
        return LabelTable.from_cells(table.ids, self.classes, cells, table.splits, self.origins)

    def header(self) -> LabelTable:
        """The classes and origins of the table, without images; its cells say what may be stored.

        Labels that are filled in have a score and a source.
        """
        tables = [self.table, *([] if self.others is None else [self.others])]
        names = {name for table in tables for name in table.cells.details.columns()}
        names |= {"scores", "sources"}
        nothing = np.zeros(0, dtype=np.int64)
        cells = Cells(
            np.zeros(1, dtype=np.int64),
            nothing.astype(np.int32),
            nothing.astype(np.int8),
            Details(**{name: nothing.astype(DEFAULTS[name].dtype) for name in names}),
        )
        splits = None if self.table.splits is None else list[str]()
        return LabelTable.from_cells([], self.classes, cells, splits, self.origins, check=False)

    def _part(
        self,
        images: Rows,
        rows: Rows | None = None,
        logits: Tensor | None = None,
        values: NDArray[np.int8] | None = None,
    ) -> LabelTable:
        """The labels of consecutive images, of which some rows can be read.

        Args:
            images: [a] the images.
            rows: [b] those of them that can be read; None for none.
            logits, values: [b, C] their logits, and what is filled in.
        """
        known = self.table.cells.take(images)
        cells = [known.where(known.values != 0)]
        if rows is None:  # scores that were there before are those of another model
            cells = [cells[0].with_details(scores=None)]
        if rows is not None and logits is not None and values is not None:
            cells = [self._with_scores(cells[0], images, rows, logits)]
            self._note_doubtful(rows, logits, values)
            cells.append(self._filled(images, rows, logits, values))
        shift = len(self.table.classes)
        if self.others is not None:
            own = images[images < len(self.others)]
            others = self.others.cells.take(own)
            cells.append(_shifted(others, shift))
        return LabelTable.from_cells(
            self.table.ids.take(images),
            self.classes,
            _merged(cells, (len(images), len(self.classes))),
            None if self.table.splits is None else self.table.splits.take(images),
            self.origins,
            check=False,
        )

    def _with_scores(self, known: Cells, images: Rows, rows: Rows, logits: Tensor) -> Cells:
        """Known cells with calibrated scores, where images can be read."""
        place = np.full(len(images), -1)
        place[rows - images[0]] = np.arange(len(rows))
        here = place[known.rows]
        scores = np.full(len(known.values), np.nan, dtype=np.float32)
        chosen = np.flatnonzero(here >= 0)
        at, columns = here[chosen], known.columns[chosen]
        calibrated = self.assessment.material.meter.calibrated
        raw = logits.numpy()[at, columns]
        scores[chosen] = expit(calibrated.of_cells(rows[at], columns, raw))
        return known.with_details(scores=scores)

    def _filled(self, images: Rows, rows: Rows, logits: Tensor, values: NDArray[np.int8]) -> Cells:
        """The cells that are filled in, and with ``all_scores`` those that stay unknown."""
        flat = values.reshape(-1)
        chosen = np.flatnonzero(flat != 0)  # of booleans it takes a fraction of the time
        at, columns = np.divmod(chosen, values.shape[1])
        self.counted.add(rows[at], columns, flat[chosen])
        if self.all_scores:
            chosen = np.setdiff1d(np.arange(flat.size), self._known(rows), assume_unique=True)
            at, columns = np.divmod(chosen, values.shape[1])
        raw = logits.numpy().reshape(-1)[chosen]
        calibrated = self.assessment.material.meter.calibrated
        details = Details(
            scores=expit(calibrated.of_cells(rows[at], columns, raw)).astype(np.float32),
            sources=np.full(len(chosen), MODEL, dtype=np.int8),
        )
        shape = len(images), values.shape[1]
        return from_triples(rows[at] - images[0], columns, flat[chosen], shape, details)

    def _note_doubtful(self, rows: Rows, logits: Tensor, values: NDArray[np.int8]) -> None:
        """Remember the cells that stay unknown and are nearest to one half."""
        near, flat = self._near(logits), values.reshape(-1)
        near = near[(flat[near] == 0) & ~np.isin(near, self._known(rows), assume_unique=True)]
        at, columns = np.divmod(near, values.shape[1])
        raw = logits.numpy().reshape(-1)[near]
        calibrated = self.assessment.material.meter.calibrated.of_cells(rows[at], columns, raw)
        closer = np.abs(calibrated) < self.doubtful.farthest
        if closer.any():
            self.doubtful.add(rows[at[closer]], columns[closer], calibrated[closer])

    def _near(self, logits: Tensor) -> NDArray[np.int64]:
        """The positions in [b, C] of cells that may be near enough to one half to be listed."""
        calibrated, farthest = self.assessment.material.meter.calibrated, self.doubtful.farthest
        if calibrated.folds is not None or math.isinf(farthest):
            return np.arange(logits.numel())
        slopes, intercepts = calibrated.line.slopes, calibrated.line.intercepts
        centre, width = -intercepts / slopes, (1.0 + 1e-3) * (farthest + 1e-3) / slopes
        low, high = (
            torch.from_numpy((centre + sign * width).astype(np.float32)) for sign in (-1, 1)
        )
        return np.flatnonzero((logits > low).logical_and_(logits < high).numpy())

    def _known(self, rows: Rows) -> NDArray[np.int64]:
        """The positions in [b, C] of the known cells of rows [b]."""
        known = self.table.cells.take(rows)
        flat = known.rows * len(self.table.classes) + known.columns
        return np.asarray(flat[known.values != 0])


def _shifted(cells: Cells, columns: int) -> Cells:
    """The same cells in later columns."""
    return Cells(cells.starts, cells.columns + np.int32(columns), cells.values, cells.details)


def _merged(parts: list[Cells], shape: tuple[int, int]) -> Cells:
    """The cells of several parts of the same rows, each cell in one of them."""
    return from_triples(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.columns for part in parts]),
        np.concatenate([part.values for part in parts]),
        shape,
        concatenate([part.details for part in parts], [len(part.values) for part in parts]),
    )
