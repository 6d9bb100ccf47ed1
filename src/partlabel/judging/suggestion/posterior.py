"""How uncertain the head of a class is about images, and which images tell it most together.

The weights of a logistic head on features x have, near the trained ones, the posterior covariance
(R I + sum_k w_k x_k x_k^T)^-1: R is the strength of the prior, and a known label k with the score p
weighs w = p (1 - p) (Laplace's approximation [1]). The variance of the logit of a new image is
x^T (...)^-1 x. A label of this image tells log(1 + p (1 - p) variance) / 2 nats about the weights
[2]. Once it is known, images like it tell less: so a set that is chosen one by one, each with what
was chosen before, is spread over the images [3].

[1] MacKay, The evidence framework applied to classification networks, 1992.
[2] MacKay, Information-based objective functions for active data selection, 1992. Houlsby et al.,
    Bayesian active learning for classification and preference learning, 2011.
[3] Kirsch, van Amersfoort and Gal, BatchBALD, 2019.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

PRIOR = 0.02  # for features of mean length 1: the strength that suits heads on frozen features


class Chosen(NamedTuple):
    """Cells in the order of their choice: positions [k] and the expected gain [k] of each."""

    positions: Positions
    gains: Floats


class Posterior:
    """What is known about the logits of a class, for a head with an intercept.

    Args:
        known: [k, D] features, of mean length 1, of the images with a known label.
        weights: [k] p (1 - p) of each known label.
        prior: R, the strength of the prior.
    """

    def __init__(self, known: NDArray[np.floating], weights: Floats, prior: float = PRIOR) -> None:
        self.known, self.prior, self.root = known, prior, np.sqrt(weights)
        inner = self.root[:, None] * _kernel(known, known, prior) * self.root
        inner[np.diag_indices_from(inner)] += 1.0
        self.factor = cholesky(inner, lower=True, overwrite_a=True)

    @property
    def information(self) -> float:
        """What the known labels have told about the weights, in nats."""
        return float(np.log(np.diag(self.factor)).sum())

    def of(self, new: NDArray[np.floating]) -> "NewLogits":
        """What is known about the logits of images with features [m, D]."""
        across = _kernel(self.known, new, self.prior) * self.root[:, None]
        explained = solve_triangular(self.factor, across, lower=True, overwrite_b=True)
        return NewLogits(new, np.asarray(explained), self.prior)


class NewLogits:
    """The covariance of the logits of m images, of which single rows are computed.

    Args:
        features: [m, D]
        explained: [k, m] whose products, summed over k, are what known labels take away.
        prior: R
    """

    def __init__(self, features: NDArray[np.floating], explained: Floats, prior: float) -> None:
        self.features, self.explained, self.prior = features, explained, prior
        length = np.einsum("ij,ij->i", features, features, dtype=np.float64)
        self.variance = np.asarray((length + 1.0) / prior - (explained**2).sum(axis=0))

    def covariance_with(self, position: int) -> Floats:
        """[m] the covariance of each logit with that of one image."""
        before = _kernel(self.features[position : position + 1], self.features, self.prior)[0]
        return np.asarray(before - self.explained[:, position] @ self.explained)


def _kernel(a: NDArray[np.floating], b: NDArray[np.floating], prior: float) -> Floats:
    """The covariance of logits before any label is known; the intercept is one more feature."""
    return ((a @ b.T).astype(np.float64) + 1.0) / prior


def choose_spread(
    logits: NewLogits, weights: Floats, number: int, value: Floats | None = None
) -> Chosen:
    """Choose cells one by one, each with the largest gain given those chosen before.

    Args:
        logits: of the m cells.
        weights: [m] p (1 - p) of each cell.
        number: of cells to choose.
        value: [m] what the information of a cell is worth; by default the same for all.
    """
    number = min(number, len(weights))
    worth = np.ones(len(weights)) if value is None else value
    left = np.ones(len(weights), dtype=np.bool_)
    variance, taken = logits.variance.copy(), np.zeros((number, len(weights)))
    positions, gains = np.zeros(number, dtype=np.int64), np.zeros(number)
    for step in range(number):
        gain = worth * np.log1p(weights * np.maximum(variance, 0.0)) / 2
        best = int(np.argmax(np.where(left, gain, -np.inf)))
        positions[step], gains[step], left[best] = best, gain[best], False
        column = logits.covariance_with(best) - taken[:step, best] @ taken[:step]
        noise = 1 / max(float(weights[best]), 1e-12)
        taken[step] = column / np.sqrt(max(float(variance[best]), 0.0) + noise)
        variance -= taken[step] ** 2
    return Chosen(positions, gains)


def leave_one_out(logits: Floats, labels: NDArray[np.int8], variance: Floats) -> Floats:
    """The logits [k] that known labels would have, had each been left out of the training.

    One step of Newton's method from the trained weights [1].

    [1] Vehtari et al., Bayesian leave-one-out cross-validation approximations for Gaussian latent
        variable models, 2016.

    Args:
        logits: [k] of the trained head.
        labels: [k] 1 or -1
        variance: [k] the posterior variance of each logit, with all labels known.
    """
    probability = 1 / (1 + np.exp(-logits))
    weight = probability * (1 - probability)
    residual = (labels > 0) - probability
    without = np.maximum(1 - weight * variance, 1e-3)
    return np.asarray(logits - residual * variance / without)
