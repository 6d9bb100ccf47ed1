"""Unknown labels compared with the truth: free functions of scores, labels and truth.

Labels and truth are [n, C] in {-1, 0, 1}, scores [n, C] from 0 to 1. A label is annotated if it was
known to the training. An unannotated label is positive or negative if the truth says so.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from partlabel.labels import ABSENT, PRESENT

Mask = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Kinds:
    """The cells [n, C] of each kind.

    Args:
        annotated: present, and known to the training.
        positives: present, but unknown to the training.
        negatives: absent, but unknown to the training.
    """

    annotated: Mask
    positives: Mask
    negatives: Mask

    def items(self) -> list[tuple[str, Mask]]:
        """Each kind with its name."""
        return [
            ("annotated positives", self.annotated),
            ("unannotated positives", self.positives),
            ("unannotated negatives", self.negatives),
        ]


def kinds(labels: NDArray[Any], truth: NDArray[Any]) -> Kinds:
    """The kind of each cell. Cells that the training knew to be absent have no kind."""
    unknown = labels == 0
    return Kinds(labels == PRESENT, unknown & (truth == PRESENT), unknown & (truth == ABSENT))


def shares(positives: NDArray[Any], negatives: NDArray[Any]) -> Numbers:
    """[C] share of positives, from the numbers [C] of both; NaN for a class with neither.

    >>> shares(np.array([1, 0]), np.array([3, 0])).tolist()
    [0.25, nan]
    """
    total = positives + negatives
    return np.where(total > 0, positives / np.maximum(total, 1), np.nan)


def mean_of(values: NDArray[Any], cells: Mask) -> float:
    """The mean over these cells; NaN if there are none."""
    return float(values[cells].mean()) if cells.any() else float("nan")


def distances(scores: NDArray[Any], positives: Mask, negatives: Mask) -> Numbers:
    """[C] Wasserstein distance between the scores of both; NaN for a class without one of them.

    0 means that the scores have the same distribution, 1 that all positives have a score of 1 and
    all negatives a score of 0 (or the reverse).
    """
    result = np.full(scores.shape[1], np.nan)
    for j in np.flatnonzero(positives.any(axis=0) & negatives.any(axis=0)):
        result[j] = wasserstein_distance(scores[positives[:, j], j], scores[negatives[:, j], j])
    return result


def most_common(positives: Mask, negatives: Mask, most: int) -> list[int]:
    """The classes with the most positives, of those that have both kinds."""
    numbers = np.where(negatives.any(axis=0), positives.sum(axis=0), 0)
    order = np.argsort(-numbers, kind="stable")[:most]
    return [int(j) for j in order if numbers[j]]


def best_first(values: Numbers) -> list[int]:
    """Classes in the order of their values [C], the highest first, without those that are NaN.

    >>> best_first(np.array([0.1, np.nan, 0.3]))
    [2, 0]
    """
    return [int(j) for j in np.argsort(-values, kind="stable") if not np.isnan(values[j])]
