"""Calibrated logits of blocks of images, exact or in bins, and thresholds on them.

Thresholds are chosen by how many unknown cells are beyond them. The logits of few cells are sorted.
Those of very many are counted in bins instead: each is rounded towards less confidence, both where
cells are counted and where they are filled in, so that the numbers are exact and nothing is filled
in below a threshold.
"""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.images.batches import Rows
from partlabel.labels import PRESENT
from partlabel.metrics.calibration import Calibration, calibrate_cells
from partlabel.metrics.known_cells import KnownCells
from partlabel.metrics.spread import Spread
from partlabel.training.out_of_fold import OutOfFold

BINS = 4096  # of a class
_PER_LOGIT = 64  # bins: a probability of 95% is rounded by less than one in a thousand
_CENTRE = BINS // 2  # the bin that begins at a logit of 0

Floats = NDArray[np.float64]
Columns = NDArray[np.integer[Any]]


class Calibrated:
    """Calibrated logits of images, from those of the final model.

    Args:
        line: the calibration.
        folds: scores of models that were not trained on an image. Where there are such, they
            replace those of the final model, calibrated by the labels of the other folds.
        judges: the labels that calibrate, with these scores; not needed without folds.
    """

    def __init__(
        self, line: Calibration, folds: OutOfFold | None = None, judges: KnownCells | None = None
    ) -> None:
        self.line, self.folds = line, folds
        self._place, self._lines = np.empty(0, dtype=np.int64), dict[int, Calibration]()
        if folds is not None and judges is not None:
            self._place = np.full(int(folds.rows.max(initial=-1)) + 1, -1)
            self._place[folds.rows] = np.arange(len(folds.rows))
            fold_of_label = folds.folds[self._place[judges.rows]]
            for fold in np.unique(folds.folds).tolist():
                self._lines[fold] = calibrate_cells(judges.where(fold_of_label != fold))

    def of(self, rows: Rows, logits: Tensor) -> Floats:
        """[b, C] of rows [b], given the logits [b, C] of the final model."""
        calibrated = logits.double().numpy() * self.line.slopes + self.line.intercepts
        if self.folds is not None:
            for here, place, line in self._in_folds(rows):
                calibrated[here] = line.logits(self.folds.scores[place])
        return np.asarray(calibrated)

    def of_cells(self, rows: Rows, columns: Columns, logits: NDArray[Any]) -> Floats:
        """[m] of cells, given the logits [m] of the final model."""
        slopes, intercepts = self.line.slopes[columns], self.line.intercepts[columns]
        calibrated = logits.astype(np.float64) * slopes + intercepts
        if self.folds is not None:
            for here, place, line in self._in_folds(rows):
                own = line.of_class(columns[here])
                calibrated[here] = own.logits(self.folds.scores[place, columns[here]])
        return np.asarray(calibrated)

    def _in_folds(self, rows: Rows) -> list[tuple[Rows, Rows, Calibration]]:
        """For each fold: which of the rows are in it, where its scores are, and its calibration."""
        assert self.folds is not None
        found = np.full(len(rows), -1)
        near = rows < len(self._place)
        found[near] = self._place[rows[near]]
        fold = np.where(found >= 0, self.folds.folds[found], -1)
        parts = [(np.flatnonzero(fold == number), line) for number, line in self._lines.items()]
        return [(here, found[here], line) for here, line in parts if len(here)]


class Meter(Protocol):
    """What is compared with thresholds."""

    calibrated: Calibrated

    def values(self, rows: Rows, logits: Tensor) -> Tensor:
        """[b, C] what is compared, given rows [b] and the logits [b, C] of the final model."""

    def limits(self, value: int, thresholds: Floats) -> Floats:
        """[C] thresholds on confidence as limits on what is compared.

        A present label is filled in if it is at least the limit, an absent one if it is at most the
        limit.
        """

    def ends(self, rows: Rows, columns: Columns, logits: NDArray[Any]) -> tuple[Floats, Floats]:
        """[m] the calibrated logits of cells, rounded down and up."""


class ExactMeter:
    """Compares calibrated logits."""

    def __init__(self, calibrated: Calibrated) -> None:
        self.calibrated = calibrated

    def values(self, rows: Rows, logits: Tensor) -> Tensor:
        """Calibrated logits."""
        return torch.from_numpy(self.calibrated.of(rows, logits))

    def limits(self, value: int, thresholds: Floats) -> Floats:
        """The thresholds, negative for absent labels."""
        return value * thresholds

    def ends(self, rows: Rows, columns: Columns, logits: NDArray[Any]) -> tuple[Floats, Floats]:
        """The calibrated logits, twice."""
        exact = self.calibrated.of_cells(rows, columns, logits)
        return exact, exact


class Grid:
    """Numbers of bins of logits, with fractions: bin k has numbers from k to k + 1.

    Args:
        line: a calibration by which bins have about the same width for all classes. It need not be
            the final one.
        crossed: the final calibrated logits, if they are not a line for each class.
    """

    def __init__(self, line: Calibration, crossed: Calibrated | None = None) -> None:
        self.line, self.crossed = line, crossed
        self.factors = (_PER_LOGIT * line.slopes).astype(np.float32)
        self.offsets = (_PER_LOGIT * line.intercepts + _CENTRE).astype(np.float32)

    def numbers(self, rows: Rows, logits: Tensor) -> Tensor:
        """[b, C] of rows [b], given the logits [b, C] of the final model."""
        if self.crossed is not None:
            return torch.from_numpy(_to_grid(self.crossed.of(rows, logits)))
        # two operations, each rounded alike wherever it is computed; a fused one is not
        return (logits * torch.from_numpy(self.factors)).add_(torch.from_numpy(self.offsets))

    def of_cells(self, rows: Rows, columns: Columns, logits: NDArray[Any]) -> NDArray[np.float32]:
        """[m] the same numbers of cells, given the logits [m] of the final model."""
        if self.crossed is not None:
            return _to_grid(self.crossed.of_cells(rows, columns, logits))
        products = logits.astype(np.float32) * self.factors[columns]
        return np.asarray(products + self.offsets[columns])

    def scale(self, line: Calibration) -> tuple[Floats, Floats]:
        """[C] factor and offset that turn numbers into calibrated logits."""
        if self.crossed is not None:
            ones = np.ones(len(line.slopes))
            return ones / _PER_LOGIT, -_CENTRE / _PER_LOGIT * ones
        factor = line.slopes / self.factors.astype(np.float64)
        return factor, line.intercepts - factor * self.offsets.astype(np.float64)


def _to_grid(calibrated: Floats) -> NDArray[np.float32]:
    return np.asarray(calibrated * _PER_LOGIT + _CENTRE).astype(np.float32)


def bins_of(numbers: NDArray[np.float32]) -> NDArray[np.int64]:
    """The bins of numbers of a grid; the first and the last have all that lie beyond."""
    return np.clip(numbers, 0, BINS - 1).astype(np.int64)


class BinMeter:
    """Compares numbers of bins."""

    def __init__(self, grid: Grid, calibrated: Calibrated) -> None:
        self.grid, self.calibrated = grid, calibrated
        self.factors, self.offsets = grid.scale(calibrated.line)

    def values(self, rows: Rows, logits: Tensor) -> Tensor:
        """Numbers of bins."""
        return self.grid.numbers(rows, logits)

    def limits(self, value: int, thresholds: Floats) -> Floats:
        """The first bin that is confident enough of present labels, the end of the last of absent.

        >>> plain = Calibration(np.ones(1), np.zeros(1), np.ones(1, dtype=np.bool_))
        >>> meter = BinMeter(Grid(plain), Calibrated(plain))
        >>> meter.limits(1, np.array([1.0])) / 64 - 32
        array([1.])
        """
        limits = np.full(len(thresholds), value * np.inf)
        for j in np.flatnonzero(np.isfinite(thresholds)):
            edges = self._edges(j, np.arange(BINS + 1))
            if value == PRESENT:
                first = int(np.searchsorted(edges[:-1], thresholds[j], side="left"))
                limits[j] = first if first < BINS else np.inf
            else:
                bins = int(np.searchsorted(edges[1:], -thresholds[j], side="right"))
                below = np.nextafter(np.float32(bins), np.float32(-np.inf))
                limits[j] = below if bins else -np.inf
        return limits

    def ends(self, rows: Rows, columns: Columns, logits: NDArray[Any]) -> tuple[Floats, Floats]:
        """The ends of the bins of cells [m]."""
        bins = bins_of(self.grid.of_cells(rows, columns, logits))
        return self._edges(columns, bins), self._edges(columns, bins + 1)

    def _edges(self, columns: Any, bins: NDArray[np.int64]) -> Floats:
        """Calibrated logits at the start of bins; the first and the last bin have no outer end."""
        edges = np.asarray(self.factors[columns] * bins + self.offsets[columns])
        return np.where(bins <= 0, -np.inf, np.where(bins >= BINS, np.inf, edges))

    def spread(self, counts: NDArray[np.integer[Any]]) -> Spread:
        """The calibrated logits of cells, given their number [C, BINS] in each bin."""
        bins = [np.flatnonzero(row) for row in counts]
        return Spread(
            [self._edges(j, own) for j, own in enumerate(bins)],
            [self._edges(j, own + 1) for j, own in enumerate(bins)],
            [row[own].astype(np.int64) for row, own in zip(counts, bins, strict=True)],
        )
