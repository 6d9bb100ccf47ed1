"""The first look at all images: the logits of known labels, and how those of unknown ones lie."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.images.batches import Rows, in_batches
from partlabel.judging.completion.layout import Layout, Part
from partlabel.judging.completion.meters import (
    BINS,
    BinMeter,
    Columns,
    ExactMeter,
    Grid,
    Meter,
    bins_of,
)
from partlabel.judging.image_scores import ImageScores
from partlabel.labels.cells import Cells
from partlabel.metrics.spread import Spread, spread_of

_CLASSES = 512  # whose cells are counted at a time: indices of eight bytes for all take long
_ONE = torch.ones((), dtype=torch.int32)


@dataclass(frozen=True)
class Survey:
    """What one pass over all images shows.

    Args:
        known: the known cells of all images.
        logits: [m] of the final model for these; NaN for images that cannot be read.
        grid: the bins in which cells are counted; None if their logits are kept one by one.
        bins: [C, BINS] the number of cells in each bin, known ones too, for each part.
    """

    known: Cells
    logits: NDArray[np.float32]
    grid: Grid | None
    bins: dict[Part, NDArray[np.int32]]

    def at(self, rows: Columns, columns: Columns, classes: int) -> NDArray[np.float32]:
        """[m] the logits of cells that are known."""
        stored = self.known.rows * classes + self.known.columns
        return np.asarray(self.logits[np.searchsorted(stored, rows * classes + columns)])


def look(scores: ImageScores, layout: Layout, grid: Grid | None) -> Survey:
    """Go over all images once.

    Args:
        grid: counts cells in bins; None if there are few, and their logits are looked at later.
    """
    cells = scores.table.cells
    known = cells if cells.values.all() else cells.where(cells.values != 0)
    logits = np.full(len(known.values), np.nan, dtype=np.float32)
    bins: dict[Part, NDArray[np.int32]] = {}
    for rows, block in scores.blocks():
        positions, starts = known.positions(rows)
        image = np.repeat(np.arange(len(rows)), np.diff(starts))
        column = known.columns[positions].astype(np.int64)
        logits[positions] = block[torch.from_numpy(image), torch.from_numpy(column)].numpy()
        if grid is not None:
            _count(bins, layout, rows, grid.numbers(rows, block))
    return Survey(known, logits, grid, bins)


def _count(
    bins: dict[Part, NDArray[np.int32]], layout: Layout, rows: Rows, numbers: Tensor
) -> None:
    """Add the cells of some rows to the numbers of cells in bins."""
    # class by class, so that the bins of a class stay in the cache; two bytes are moved fast
    by_class = numbers.clamp_(0, BINS - 1).short().T.contiguous()
    kinds = layout.kind[rows]
    for kind in np.unique(kinds):
        of_kind = (
            by_class if (kinds == kind).all() else by_class[:, torch.from_numpy(kinds == kind)]
        )
        parts = layout.parts[kind]
        for part in map(Part, np.unique(parts).tolist()):
            if part not in bins:
                bins[part] = np.zeros((len(parts), BINS), dtype=np.int32)
            for classes in in_batches(np.flatnonzero(parts == part), _CLASSES):
                _add(bins[part], classes, of_kind)


def _add(total: NDArray[np.int32], classes: Rows, by_class: Tensor) -> None:
    """Count the cells of some classes in their bins.

    Args:
        total: [C, BINS] the numbers so far.
        classes: in ascending order.
        by_class: [C, b] the bins of cells.
    """
    first, end = int(classes[0]), int(classes[-1]) + 1
    if end - first == len(classes):
        counts, own = torch.from_numpy(total[first:end]), by_class[first:end].long()
        counts.scatter_add_(1, own, _ONE.expand(own.shape))
    else:
        own = by_class[torch.from_numpy(classes)].long()
        counts = torch.zeros((len(classes), BINS), dtype=torch.int32)
        total[classes] += counts.scatter_add_(1, own, _ONE.expand(own.shape)).numpy()


def spreads(
    survey: Survey, scores: ImageScores, layout: Layout, meter: Meter
) -> dict[Part, Spread]:
    """The calibrated logits of the unknown cells of each part."""
    if isinstance(meter, ExactMeter):
        return _exact_spreads(scores, layout, meter)
    assert isinstance(meter, BinMeter)
    rows, columns, classes = layout.rows, layout.columns, len(scores.table.classes)
    own_bins = bins_of(meter.grid.of_cells(rows, columns, survey.at(rows, columns, classes)))
    flat, result = columns.astype(np.int64) * BINS + own_bins, {}
    for part, counts in survey.bins.items():
        own = flat[layout.of_known == part]
        known = np.bincount(own, minlength=counts.size).reshape(counts.shape)
        result[part] = meter.spread(counts - known)
    return result


def _exact_spreads(scores: ImageScores, layout: Layout, meter: ExactMeter) -> dict[Part, Spread]:
    calibrated = np.zeros(scores.table.shape)
    parts = np.full(scores.table.shape, -1, dtype=np.int8)
    for block, logits in scores.blocks():
        calibrated[block] = meter.calibrated.of(block, logits)
        parts[block] = layout.of(block)
    parts[layout.rows, layout.columns] = -1
    return {
        part: spread_of(calibrated, parts == part)
        for part in map(Part, np.unique(parts[parts >= 0]).tolist())
    }
