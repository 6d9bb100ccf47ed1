"""What scores mean: probabilities, and from where up a class is best called present."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from partlabel.labels import ABSENT, PRESENT

Floats = NDArray[np.float64]
_FEW = 10  # labels of a kind: with fewer, a class has no line of its own


@dataclass(frozen=True)
class Calibration:
    """A line for the logits of each class, after which they tell probabilities (Platt, 1999).

    Args:
        slopes, intercepts: [C]
        own: [C] whether a class has a line of its own.
    """

    slopes: Floats
    intercepts: Floats
    own: NDArray[np.bool_]

    def logits(self, scores: NDArray[Any]) -> Floats:
        """[n, C] from scores, in the same order within a class."""
        return logits(scores) * self.slopes + self.intercepts


def logits(scores: NDArray[Any]) -> Floats:
    """What the sigmoid made these scores of; those that it rounded to 0 or 1 stay finite.

    >>> logits(np.array([0.5, 1.0])).round(1).tolist()
    [0.0, 36.7]
    """
    double = np.asarray(scores, dtype=np.float64)
    inside = np.clip(double, np.finfo(np.float64).tiny, np.nextafter(1.0, 0.0))
    return np.asarray(np.log(inside) - np.log1p(-inside))


def calibrate(scores: NDArray[Any], labels: NDArray[Any]) -> Calibration:
    """Fit lines on known labels.

    Classes with few labels of a kind share a line, fitted on the labels of all of them; if these
    are few too, on those of all classes.

    Args:
        scores: [n, C]
        labels: [n, C] in {-1, 0, 1}
    """
    found = logits(scores)
    present, absent = ((labels == value).sum(axis=0) for value in (PRESENT, ABSENT))
    own = np.minimum(present, absent) >= _FEW
    shared = ~own if min(present[~own].sum(), absent[~own].sum()) >= _FEW else np.ones_like(own)
    line = (1.0, 0.0) if own.all() else _line(found, labels, shared)
    slopes, intercepts = (np.full(len(own), value) for value in line)
    for j in np.flatnonzero(own):
        slopes[j], intercepts[j] = _line(found, labels, np.arange(len(own)) == j)
    return Calibration(slopes, intercepts, own)


def _line(found: Floats, labels: NDArray[Any], classes: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and intercept that make known labels of these classes likeliest.

    Targets are a little inside 0 and 1, as if one more label of each kind had been seen.
    """
    known = (labels != 0) & classes
    x, y = found[known], labels[known] == PRESENT
    if not y.any() or y.all():
        return 1.0, 0.0
    target = np.where(y, (y.sum() + 1) / (y.sum() + 2), 1 / ((~y).sum() + 2))
    middle, width = x.mean(), x.std()
    if width < 1e-9:  # scores tell nothing, but how many are present
        return 1.0, float(np.log(y.mean() / (1 - y.mean())) - middle)
    x = (x - middle) / width

    def cost(line: Floats) -> tuple[float, Floats]:
        z = line[0] * x + line[1]
        slip = expit(z) - target
        value = np.logaddexp(0, z).sum() - (target * z).sum()
        return value / len(x), np.array([(slip * x).mean(), slip.mean()])

    start = np.array([1.0, 0.0])
    limits = [(1e-3, None), (None, None)]  # a class keeps its order
    slope, intercept = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=limits).x
    return float(slope / width), float(intercept - slope * middle / width)


class Bins(NamedTuple):
    """Cells by what a model says of them: mean of that, share that is present, and number."""

    said: Floats
    present: Floats
    cells: NDArray[np.int64]

    @property
    def error(self) -> float:
        """The expected calibration error; NaN without cells."""
        total = self.cells.sum()
        gaps = np.abs(self.said - self.present) * self.cells
        return float(gaps.sum() / total) if total else math.nan


def reliability(probabilities: NDArray[Any], present: NDArray[np.bool_], bins: int = 15) -> Bins:
    """How often cells are present of which a model says so with some probability, both [m].

    >>> reliability(np.array([0.2, 0.2, 0.9]), np.array([False, True, True]), 5).error.__round__(3)
    0.233
    """
    place = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    cells = np.bincount(place, minlength=bins)
    said, there = (
        np.bincount(place, values, bins)[cells > 0] / cells[cells > 0]
        for values in (probabilities, present)
    )
    return Bins(said, there, cells[cells > 0])


def balanced_thresholds(scores: NDArray[Any], labels: NDArray[Any]) -> Floats:
    """[C] from where up a class is best called present: the largest F1 on known labels.

    Half way between two scores, so that new ones may be a little lower; NaN for a class of which
    not both kinds of label are known.

    Args:
        scores: [n, C]
        labels: [n, C] in {-1, 0, 1}
    """
    thresholds = np.full(labels.shape[1], np.nan)
    for j in range(labels.shape[1]):
        known = labels[:, j] != 0
        values, place = np.unique(-scores[known, j], return_inverse=True)  # the highest first
        right = np.bincount(place, labels[known, j] == PRESENT, len(values)).cumsum()
        called = np.bincount(place, minlength=len(values)).cumsum()
        if not len(values) or right[-1] in (0, called[-1]):
            continue
        best = int(np.argmax(2 * right / (called + right[-1])))
        thresholds[j] = -values[best : best + 2].mean()
    return thresholds
