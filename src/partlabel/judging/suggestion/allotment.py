"""How many questions each class gets."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def allot(budget: int, weights: Floats, available: Counts) -> Counts:
    """[C] numbers that add up to a budget, in proportion to weights, at most what is available.

    Args:
        budget: at most the sum of what is available.
        weights: [C] not negative.
        available: [C] cells of each class that can be asked about.

    >>> allot(10, np.array([1.0, 1.0, 2.0]), np.array([9, 9, 3])).tolist()
    [4, 3, 3]
    """
    shares = np.zeros(len(weights), dtype=np.int64)
    weights = np.maximum(weights.astype(np.float64), 1e-12)
    while (rest := min(budget, int(available.sum())) - int(shares.sum())) > 0:
        open_classes = shares < available
        share = np.where(open_classes, weights, 0.0)
        wanted = rest * share / share.sum()
        more = np.minimum(np.floor(wanted).astype(np.int64), available - shares)
        if not more.any():  # less than one each: the largest remainders
            first = np.argsort(-np.where(open_classes, wanted, -1.0), kind="stable")[:rest]
            more[first] = open_classes[first]
        shares += more
    return shares


def rarity(present: Counts) -> Floats:
    """[C] weights for the mean over classes: classes with few known present labels get more.

    The error of what is estimated from k labels falls as one over the square root of k.
    """
    return np.asarray(1 / np.sqrt(present + 2.0))


def abundance(expected: Floats) -> Floats:
    """[C] weights for the total over classes: classes with more to find get more."""
    return np.sqrt(np.maximum(expected, 0.0))
