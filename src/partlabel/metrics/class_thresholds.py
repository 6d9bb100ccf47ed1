"""From which score on a class is predicted: a threshold per class, for the best F1."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.labels import PRESENT
from partlabel.metrics.calibration import Calibration
from partlabel.metrics.known_cells import KnownCells

Floats = NDArray[np.float64]

_WEIGHT = 5.0  # of the threshold that all classes share, in present labels of a class


def balanced_thresholds(cells: KnownCells, calibration: Calibration) -> Floats:
    """[C] thresholds of scores with a large F1; NaN if no class has present and absent labels.

    The threshold with the best F1 on the few known labels of a class is a matter of luck. So it is
    drawn towards the one that all classes share: a calibrated probability, chosen on the labels of
    all classes, where each class counts the same. The threshold of a class is the mean of both, as
    calibrated logits. Its own weighs as much as it has present labels, the shared one as 5 labels.

    Args:
        cells: known labels with scores.
        calibration: of these scores.
    """
    own = own_thresholds(cells)
    has_own = ~np.isnan(own)
    if not has_own.any():
        return own
    is_present = cells.labels == PRESENT
    present = np.bincount(cells.columns[is_present], minlength=cells.classes)
    used = has_own[cells.columns]
    columns = cells.columns[used]
    calibrated = calibration.of_class(columns).logits(cells.scores[used])
    shared = _best(calibrated, is_present[used], 1 / present[columns])
    number = np.where(has_own, present, 0)
    of_class = calibration.logits(np.where(has_own, own, 0.5)[None])[0]
    mixed = (number * of_class + _WEIGHT * shared) / (number + _WEIGHT)
    return np.asarray(expit((mixed - calibration.intercepts) / calibration.slopes))


def own_thresholds(cells: KnownCells) -> Floats:
    """[C] the threshold with the largest F1 on the known labels of each class alone.

    It is NaN for a class without both present and absent known labels.
    """
    thresholds = np.full(cells.classes, np.nan)
    for j, own in enumerate(cells.by_class):
        present = cells.labels[own] == PRESENT
        if present.any() and not present.all():
            thresholds[j] = _best(cells.scores[own], present, np.ones(len(present)))
    return thresholds


def _best(scores: NDArray[np.floating], present: NDArray[np.bool_], weights: Floats) -> float:
    """The threshold with the largest F1, where labels [m] have weights.

    It lies half way between two scores, so that new scores may be slightly lower.
    """
    # negated, so that the highest score comes first
    negated, index = np.unique(-scores, return_inverse=True)
    hits = np.bincount(index, weights * present, len(negated)).cumsum()
    predicted = np.bincount(index, weights, len(negated)).cumsum()
    best = int(np.argmax(2 * hits / (predicted + hits[-1])))
    return float(-negated[best : best + 2].mean())
