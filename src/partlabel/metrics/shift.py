"""How unlike two sets of images are: can a classifier tell them apart?

[1] Lopez-Paz and Oquab, Revisiting classifier two-sample tests, 2017.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import expit

_COMPONENTS = 32
_RIDGE = 30.0  # so that few images do not look unlike by chance

Floats = NDArray[np.float64]


class Shift(NamedTuple):
    """The difference between the images of a test and new ones.

    Args:
        auc: the chance that a classifier gives a new image a higher score than one of the test,
            measured on images that it has not seen: 0.5 if they are alike, 1 if it can tell all.
        effective: the share of the images of the test that still counts if they are weighted to
            look like the new ones.
    """

    auc: float
    effective: float


def measure_shift(
    tested: NDArray[Any], new: NDArray[Any], seed: int = 0, images: NDArray[Any] | None = None
) -> Shift:
    """Train a linear classifier to tell new images from those of a test, in two folds.

    An effect size, not a test of significance: with many images any difference is significant.

    Args:
        tested, new: [n, d] and [m, d] features.
        seed: of the folds.
        images: [n + m] which image each of these is, if some are in both; they share a fold.
    """
    features, is_new = (
        _components(np.concatenate([tested, new])),
        np.repeat([0.0, 1.0], [len(tested), len(new)]),
    )
    which = np.arange(len(is_new)) if images is None else np.unique(images, return_inverse=True)[1]
    fold = (np.random.default_rng(seed).permutation(int(which.max(initial=0)) + 1) % 2)[which]
    logits = np.zeros(len(is_new))
    for held in (0, 1):
        weights = _fit(features[fold != held], is_new[fold != held])
        logits[fold == held] = features[fold == held] @ weights
    odds = np.exp(np.clip(logits[is_new == 0], -20, 20))
    effective = odds.sum() ** 2 / max(float((odds**2).sum()) * len(odds), 1e-300)
    return Shift(auc(logits[is_new == 1], logits[is_new == 0]), float(effective))


def auc(high: NDArray[Any], low: NDArray[Any]) -> float:
    """The chance that a number of the first kind is higher than one of the second.

    >>> auc(np.array([3.0, 2.0]), np.array([1.0, 2.0]))
    0.875
    """
    ranks = scipy.stats.rankdata(np.concatenate([high, low]))[: len(high)].sum()
    return float((ranks - len(high) * (len(high) + 1) / 2) / max(len(high) * len(low), 1))


def principal_components(features: NDArray[Any], most: int) -> Floats:
    """[n, c] the components with the largest variance, at most this many."""
    centred = features.astype(np.float64) - features.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return np.asarray(centred @ vectors[:, -min(most, vectors.shape[1]) :])


def _components(features: NDArray[Any]) -> Floats:
    """Standardised principal components, and a constant."""
    parts = principal_components(features, _COMPONENTS)
    parts /= np.maximum(parts.std(axis=0), 1e-12)
    return np.hstack([parts, np.ones((len(parts), 1))])


def _fit(features: Floats, target: Floats) -> Floats:
    """Weights of a logistic regression in which both kinds weigh as much as the smaller one.

    If the smaller kind weighed as much as the larger one, a few images would be learned by heart.
    """
    ones = max(float(target.sum()), 1e-6)
    zeros = max(len(target) - ones, 1e-6)
    weight = np.where(target == 1, min(1.0, zeros / ones), min(1.0, ones / zeros))

    def cost(weights: Floats) -> tuple[float, Floats]:
        logits = features @ weights
        value = (weight * (np.logaddexp(0, logits) - target * logits)).sum()
        slope = features.T @ (weight * (expit(logits) - target))
        return value + _RIDGE / 2 * float(weights @ weights), slope + _RIDGE * weights

    start = np.zeros(features.shape[1])
    return np.asarray(scipy.optimize.minimize(cost, start, jac=True, method="L-BFGS-B").x)
