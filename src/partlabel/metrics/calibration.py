"""Turn scores into probabilities."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.labels import PRESENT
from partlabel.metrics.known_cells import KnownCells, known_cells

Floats = NDArray[np.float64]
_MIN_LABELS = 10  # present and absent labels that a class needs for a line of its own


@dataclass(frozen=True)
class Calibration:
    """A linear map of the logits per class whose sigmoid is a probability (Platt, 1999).

    Args:
        slopes, intercepts: [C]
        own: [C] whether the line of a class was fitted on its own labels alone.
    """

    slopes: Floats
    intercepts: Floats
    own: NDArray[np.bool_]

    def logits(self, scores: NDArray[Any]) -> Floats:
        """Calibrated logits [n, C] of scores [n, C]. The order within a class does not change."""
        return logits(scores) * self.slopes + self.intercepts

    def of_class(self, columns: NDArray[np.integer[Any]]) -> "Calibration":
        """The lines of the classes [m] of single cells, for scores [m] of these."""
        return Calibration(self.slopes[columns], self.intercepts[columns], self.own[columns])

    def probabilities(self, scores: NDArray[Any]) -> Floats:
        """Calibrated scores [n, C] of scores [n, C]."""
        return np.asarray(expit(self.logits(scores)))


def logits(scores: NDArray[Any]) -> Floats:
    """The inverse of the sigmoid. Scores that were rounded to 0 or 1 give finite logits.

    >>> logits(np.array([0.5, 1.0])).round(1).tolist()
    [0.0, 36.7]
    """
    double = np.asarray(scores, dtype=np.float64)
    inside = np.clip(double, np.finfo(np.float64).tiny, np.nextafter(1.0, 0.0))
    return np.asarray(np.log(inside) - np.log1p(-inside))


def calibrate(scores: NDArray[Any], labels: NDArray[Any]) -> Calibration:
    """Fit a calibration on known labels.

    A class with at least 10 present and 10 absent labels gets its own line. All other classes share
    one line, which is fitted on their labels together. If these are also too few, the shared line
    is fitted on the labels of all classes.

    Args:
        scores: [n, C]
        labels: [n, C] in {-1, 0, 1}
    """
    return calibrate_cells(known_cells(scores, labels))


def calibrate_cells(cells: KnownCells) -> Calibration:
    """As :func:`calibrate`, from the scores of known labels alone."""
    raw, columns, is_present = logits(cells.scores), cells.columns, cells.labels == PRESENT
    present, absent = (
        np.bincount(columns[kind], minlength=cells.classes) for kind in (is_present, ~is_present)
    )
    own = np.minimum(present, absent) >= _MIN_LABELS
    enough = min(present[~own].sum(), absent[~own].sum()) >= _MIN_LABELS
    shared = ~own[columns] if enough else np.ones(len(cells), dtype=np.bool_)
    line = (1.0, 0.0) if own.all() else _fit_line(raw[shared], is_present[shared])
    slopes, intercepts = (np.full(len(own), value) for value in line)
    positions = cells.by_class
    for j in np.flatnonzero(own):
        slopes[j], intercepts[j] = _fit_line(raw[positions[j]], is_present[positions[j]])
    return Calibration(slopes, intercepts, own)


def _fit_line(x: Floats, y: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and intercept with the highest likelihood on known labels.

    Targets are smoothed as by Platt: as if there were one more label of each kind.

    Args:
        x: [m] logits before calibration.
        y: [m] whether the labels are present.
    """
    if not y.any() or y.all():
        return 1.0, 0.0
    target = np.where(y, (y.sum() + 1) / (y.sum() + 2), 1 / ((~y).sum() + 2))
    center, scale = x.mean(), x.std()
    if scale < 1e-9:  # constant scores: only the share of present labels can be fitted
        return 1.0, float(np.log(y.mean() / (1 - y.mean())) - center)
    x = (x - center) / scale

    def cost(line: Floats) -> tuple[float, Floats]:
        z = line[0] * x + line[1]
        residual = expit(z) - target
        value = np.logaddexp(0, z).sum() - (target * z).sum()
        return value / len(x), np.array([(residual * x).mean(), residual.mean()])

    start = np.array([1.0, 0.0])
    bounds = [(1e-3, None), (None, None)]  # a positive slope keeps the order of the scores
    slope, intercept = scipy.optimize.minimize(
        cost, start, jac=True, method="L-BFGS-B", bounds=bounds
    ).x
    return float(slope / scale), float(intercept - slope * center / scale)


class Bins(NamedTuple):
    """A reliability diagram. Bins without cells are left out.

    Args:
        predicted: [k] mean predicted probability of the cells of each bin.
        present: [k] share of the cells of each bin that are present.
        cells: [k] number of cells per bin.
    """

    predicted: Floats
    present: Floats
    cells: NDArray[np.int64]

    @property
    def error(self) -> float:
        """The expected calibration error; NaN without cells."""
        total = self.cells.sum()
        gaps = np.abs(self.predicted - self.present) * self.cells
        return float(gaps.sum() / total) if total else math.nan


def reliability(probabilities: NDArray[Any], present: NDArray[np.bool_], bins: int = 15) -> Bins:
    """Compare predicted probabilities with how often cells are present.

    Args:
        probabilities: [m] predicted probability of each cell.
        present: [m] whether each cell is present.
        bins: number of bins of equal width.

    >>> reliability(np.array([0.2, 0.2, 0.9]), np.array([False, True, True]), 5).error.__round__(3)
    0.233
    """
    index = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    cells = np.bincount(index, minlength=bins)
    predicted, actual = (
        np.bincount(index, values, bins)[cells > 0] / cells[cells > 0]
        for values in (probabilities, present)
    )
    return Bins(predicted, actual, cells[cells > 0])
