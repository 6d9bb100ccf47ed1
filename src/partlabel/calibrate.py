"""From scores to decisions: thresholds per class, chosen on labels that were held out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import ABSENT, PRESENT

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Thresholds:
    """Per class: present from here up, absent from here down; infinite where neither can be said.

    Args:
        present: [C]
        absent: [C]
    """

    present: Floats
    absent: Floats

    def decide(self, scores: NDArray[Any]) -> NDArray[np.int8]:
        """[n, C] 1, -1, or 0 where the scores do not suffice."""
        present, absent = scores >= self.present, scores <= self.absent
        return np.where(present, PRESENT, np.where(absent, ABSENT, 0)).astype(np.int8)


def choose_thresholds(scores: NDArray[Any], labels: NDArray[Any], precision: float) -> Thresholds:
    """The widest thresholds at which the known labels given here reach a precision.

    A class of which not both kinds of label are known gets none.

    Args:
        scores: [n, C]
        labels: [n, C] in {-1, 0, 1}
        precision: share of the cells called present that are, and of those called absent.
    """
    present, absent = np.full(labels.shape[1], np.inf), np.full(labels.shape[1], -np.inf)
    for j in range(labels.shape[1]):
        known = labels[:, j] != 0
        score, label = scores[known, j], labels[known, j]
        if len(np.unique(label)) < 2:
            continue  # with one kind of label, any threshold would pass
        present[j] = _lowest(score, label == PRESENT, precision)
        absent[j] = -_lowest(-score, label == ABSENT, precision)
    crossed = absent >= present  # between them both would hold, so neither is believed there
    narrow = Thresholds(
        np.where(crossed, np.nextafter(absent, np.inf), present),
        np.where(crossed, np.nextafter(present, -np.inf), absent),
    )
    decided = narrow.decide(scores)
    for j in np.flatnonzero(
        crossed
    ).tolist():  # what is left of each side must still be good enough
        for sign, limits in ((PRESENT, narrow.present), (ABSENT, narrow.absent)):
            called = (decided[:, j] == sign) & (labels[:, j] != 0)
            if called.any() and (labels[called, j] == sign).mean() < precision:
                limits[j] = sign * np.inf
    return narrow


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


def _lowest(scores: NDArray[Any], right: NDArray[np.bool_], precision: float) -> float:
    """The lowest score from which up the share of right ones is at least ``precision``."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    share = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    last_of_ties = np.append(ordered[1:] != ordered[:-1], True) if len(order) else np.empty(0, bool)
    good = np.flatnonzero(last_of_ties & (share >= precision))
    return float(ordered[good[-1]]) if len(good) else float("inf")
