"""Bounds that hold at every moment while somebody samples labels and watches the result.

A population of N cells, M of which the model gets wrong, is sampled without replacement. After n
cells, k of them wrong, every M is compared with a mixture of all M: with a beta-binomial prior the
mixture gives the observed sequence the probability B(a + k, b + n - k) / B(a, b), and M gives it

    M! / (M - k)!  *  (N - M)! / (N - M - (n - k))!  *  (N - n)! / N!

For the true M, the ratio of the first to the second is a martingale that starts at 1, however the
moment to stop is chosen. By Ville's inequality it ever reaches 1 / 0.05 with a probability of at
most 5% [1]. The values of M whose ratio has stayed below that are therefore a confidence sequence.

In a stratified sample the product of the ratios of all strata is a martingale too, also if the next
stratum is chosen by looking at all earlier answers. The bound is then the largest sum of M over all
combinations that the product does not exclude [2]. Each ratio is log-convex in M, so that this is a
concave problem, solved by one multiplier. M is allowed to lie between whole numbers, which only
makes the bound more careful.

[1] Waudby-Smith and Ramdas, Confidence sequences for sampling without replacement, NeurIPS 2020
    (prior-posterior-ratio martingales).
[2] Spertus and Stark, Sweeter than SUITE: supermartingale stratified union-intersection tests of
    elections, 2022.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, digamma, gammaln

Floats = NDArray[np.float64]

ERROR = 0.05
"""The largest chance that a bound is ever wrong."""

_STEPS = 30  # of each bisection
_SLOPES = (
    -18.0,
    6.0,
)  # logarithms of the multipliers: the derivatives of populations up to 10 million
_GRID = 16  # numbers of answers that are tried at a time
_SHAPE = 0.5  # of the prior: how much more likely shares of errors near 0 are
_HOPED = 3.0  # the prior expects this many times fewer errors than a guarantee allows


class Sampled(NamedTuple):
    """What is known of strata; the last axis of each array has the strata of one union.

    Args:
        size: [..., H] cells in the population.
        drawn: [..., H] cells that were drawn so far.
        wrong: [..., H] how many of these the model gets wrong.
    """

    size: Floats
    drawn: Floats
    wrong: Floats

    @classmethod
    def of(cls, size: ArrayLike, drawn: ArrayLike, wrong: ArrayLike) -> "Sampled":
        """From numbers of any kind."""
        return cls(*(np.asarray(part, dtype=np.float64) for part in (size, drawn, wrong)))


def log_probability(sampled: Sampled, wrong: ArrayLike) -> Floats:
    """The log probability of the observed sequences if ``wrong`` [..., H] cells are wrong in all.

    >>> one = Sampled.of([4], [2], [1])  # right, then wrong, in a population of 4 with 2 wrong
    >>> float(np.exp(log_probability(one, [2]))[0].round(4)), round(2 / 4 * 2 / 3, 4)
    (0.3333, 0.3333)
    """
    total = np.asarray(wrong, dtype=np.float64)
    size, drawn, errors = sampled
    right = drawn - errors
    return np.asarray(
        gammaln(total + 1)
        - gammaln(total - errors + 1)
        + gammaln(size - total + 1)
        - gammaln(size - total - right + 1)
        + gammaln(size - drawn + 1)
        - gammaln(size + 1)
    )


def log_mixture(sampled: Sampled, precision: float) -> Floats:
    """[..., H] the log probability of the observed sequences under the prior."""
    expected = (1 - precision) / _HOPED
    other = _SHAPE * (1 - expected) / expected
    right = sampled.drawn - sampled.wrong
    return np.asarray(betaln(_SHAPE + sampled.wrong, other + right) - betaln(_SHAPE, other))


def most_wrong(sampled: Sampled, precision: float) -> Floats:
    """[...] an upper bound of the wrong cells in each union of strata, valid at all times.

    Args:
        sampled: the strata of the unions. A stratum of size 0 has no effect.
        precision: the precision that one hopes to show. The bound is valid for any value, and
            tightest if the share of errors is well below ``1 - precision``.
    """
    low = sampled.wrong
    high = sampled.size - (sampled.drawn - sampled.wrong)
    least = np.log(ERROR) + log_mixture(sampled, precision).sum(axis=-1)

    def best(slope: Floats) -> Floats:
        """[..., H] where log probability plus slope times the wrong cells is highest."""
        lower, upper = low.copy(), high.copy()
        for _ in range(_STEPS):
            middle = (lower + upper) / 2
            rising = _derivative(sampled, middle) + slope[..., None] > 0
            lower, upper = np.where(rising, middle, lower), np.where(rising, upper, middle)
        return upper

    bottom, top = (np.full(least.shape, end) for end in _SLOPES)
    for _ in range(_STEPS):
        middle = (bottom + top) / 2
        possible = log_probability(sampled, best(np.exp(middle))).sum(axis=-1) >= least
        bottom, top = np.where(possible, middle, bottom), np.where(possible, top, middle)
    # the true number is whole, and summing rounds
    return np.asarray(np.floor(best(np.exp(top)).sum(axis=-1) + 1e-6))


def _derivative(sampled: Sampled, wrong: Floats) -> Floats:
    """Of :func:`log_probability`; it falls as ``wrong`` grows."""
    size, drawn, errors = sampled
    right = drawn - errors
    return np.asarray(
        digamma(wrong + 1)
        - digamma(wrong - errors + 1)
        - digamma(size - wrong + 1)
        + digamma(size - wrong - right + 1)
    )


def least_precision(sampled: Sampled, precision: float) -> Floats:
    """[...] a lower bound of the share of cells that the model gets right, valid at all times.

    >>> bound = least_precision(Sampled.of([[2000]] * 3, [[59], [71], [71]], [[0], [0], [1]]), 0.95)
    >>> (bound >= 0.95).tolist()
    [False, True, False]
    """
    total = sampled.size.sum(axis=-1)
    share = most_wrong(sampled, precision) / np.maximum(total, 1)
    return np.asarray(np.where(total > 0, 1 - np.minimum(share, 1), 0.0))


def still_needed(sampled: Sampled, precision: float) -> NDArray[np.int64]:
    """[...] further right answers, spread in proportion to the strata, that show the precision.

    It is -1 if even all the other cells would not be enough.

    >>> nothing = [[0], [0], [0], [0]]
    >>> still_needed(Sampled.of([[100_000], [500], [200], [6]], nothing, nothing), 0.95).tolist()
    [71, 63, 54, 6]
    """
    left = (sampled.size - sampled.drawn).sum(axis=-1)

    def enough(more: Floats) -> NDArray[np.bool_]:
        axes = range(left.ndim, more.ndim)
        one = Sampled(*(np.expand_dims(part, tuple(axes)) for part in sampled))
        drawn = _spread(one, np.maximum(more, 0))
        size, wrong = (np.broadcast_to(part, drawn.shape) for part in (one.size, one.wrong))
        return least_precision(Sampled(size, drawn, wrong), precision) >= precision

    low, high = np.full(left.shape, -1.0), left.copy()
    impossible = ~enough(high)
    while (high - low > 1).any():
        tried = np.floor(np.linspace(low, high, _GRID + 1, axis=-1))  # the ends are known
        passed = enough(tried)
        passed[..., 0], passed[..., -1] = False, True
        first = passed.argmax(axis=-1)[..., None]
        low = np.take_along_axis(tried, first - 1, axis=-1)[..., 0]
        high = np.take_along_axis(tried, first, axis=-1)[..., 0]
    return np.where(impossible, -1, high).astype(np.int64)


def _spread(sampled: Sampled, more: Floats) -> Floats:
    """[..., H] cells drawn after ``more`` [...] further draws, in proportion to the strata."""
    total = np.maximum(sampled.size.sum(axis=-1, keepdims=True), 1)
    wanted = (sampled.drawn.sum(axis=-1, keepdims=True) + more[..., None]) * sampled.size / total
    missing = np.maximum(wanted - sampled.drawn, 0)
    scale = more[..., None] / np.maximum(missing.sum(axis=-1, keepdims=True), 1e-12)
    return np.asarray(np.minimum(sampled.drawn + missing * np.minimum(scale, 1), sampled.size))


def next_stratum(sampled: Sampled) -> int:
    """The stratum [H] to draw from next, so that draws stay in proportion to the sizes; -1 if none.

    >>> next_stratum(Sampled.of([90, 10], [3, 0], [0, 0]))
    0
    """
    left: Any = sampled.drawn < sampled.size
    if not left.any():
        return -1
    need = np.where(left, sampled.size / (sampled.drawn + 0.5), -1.0)
    return int(need.argmax())
