"""How well scores rank known positives, if no label is known to be absent."""

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from partlabel.images.batches import in_batches
from partlabel.labels import ABSENT, PRESENT

_AT_ONCE = 4096  # positives whose images are compared at a time


def positive_auc(scores: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Per class, the share of (known positive, other image) pairs in which the positive is higher.

    Other images are those whose label is unknown or absent, and equal scores count half. Unknown
    labels that are present lower the result of all models alike if known positives are a random
    sample of all positives. The order of two models is then the same as with all labels known.

    Args:
        scores: [n, C]
        labels: [n, C] in {-1, 0, 1}.

    Returns:
        [C], NaN for a class without known positives or without other images.

    >>> positive_auc([[0.9], [0.2], [0.5], [0.5]], [[1], [0], [1], [-1]]).tolist()
    [0.875]
    """
    scores, present = np.asarray(scores, dtype=np.float64), np.asarray(labels) == PRESENT
    positives = present.sum(axis=0)
    others = len(present) - positives
    ranks = scipy.stats.rankdata(scores, axis=0) if scores.size else np.zeros(scores.shape)
    above = (ranks * present).sum(axis=0) - positives * (positives + 1) / 2
    pairs = positives * others
    return np.where(pairs > 0, above / np.maximum(pairs, 1), np.nan)


def has_enough(labels: ArrayLike, least: int) -> NDArray[np.bool_]:
    """[C] whether at least this many labels of a class are known of each kind.

    >>> has_enough([[1, 1], [-1, 0]], 1).tolist()
    [True, False]
    """
    values = np.asarray(labels)
    present, absent = (values == PRESENT).sum(axis=0), (values == ABSENT).sum(axis=0)
    return np.asarray((present >= least) & (absent >= least))


def image_ranks(scores: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """For each known positive, the share of other classes of its image with a lower score.

    Other classes are those whose label is unknown or absent, and equal scores count half.

    Args:
        scores: [n, C], on a scale that all classes share.
        labels: [n, C] in {-1, 0, 1}.

    Returns:
        [P], in the order of rows, then of classes; NaN in an image without other classes.

    >>> image_ranks([[0.9, 0.1, 0.5], [0.2, 0.3, 0.2]], [[1, 0, 0], [1, -1, 0]]).tolist()
    [1.0, 0.25]
    """
    scores, present = np.asarray(scores, dtype=np.float64), np.asarray(labels) == PRESENT
    rows, columns = np.nonzero(present)
    parts = [
        _shares_below(scores[rows[part]], ~present[rows[part]], columns[part])
        for part in in_batches(np.arange(len(rows)), _AT_ONCE)
    ]
    return np.concatenate([*parts, np.empty(0)])


def _shares_below(
    scores: NDArray[np.float64], others: NDArray[np.bool_], columns: NDArray[np.int64]
) -> NDArray[np.float64]:
    """[p] the share of other classes of a row [p, C] that are below that of its column."""
    own = np.take_along_axis(scores, columns[:, None], axis=1)
    below = ((scores < own) + 0.5 * (scores == own)) * others
    number = others.sum(axis=1)
    return np.where(number > 0, below.sum(axis=1) / np.maximum(number, 1), np.nan)
