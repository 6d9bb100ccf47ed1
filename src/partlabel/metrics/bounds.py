"""Exact tests and bounds for the share of errors, from a random sample of labels.

A number of cells beyond a threshold have labels that nobody knows, except for a random sample. The
functions answer how many of all these cells may be wrong, given how many of the sample are wrong.
None of them is an approximation: each holds for every number of cells.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

CONFIDENCE = 0.95
ERROR = 1 - CONFIDENCE  # largest chance of a wrong statement


def at_least(right: float, tested: float, error: float = ERROR) -> float:
    """Lower confidence bound of a share: exact (Clopper-Pearson), one-sided.

    >>> round(at_least(59, 59), 3), round(at_least(92, 93), 3), at_least(0, 0)
    (0.95, 0.95, 0.0)
    """
    return float(scipy.stats.beta.ppf(error, right, tested - right + 1)) if right else 0.0


def interval(number: int, tested: int, error: float = ERROR) -> tuple[float, float]:
    """Two-sided confidence interval of a share: exact (Clopper-Pearson).

    >>> [round(end, 3) for end in interval(10, 100)], interval(0, 0)
    ([0.049, 0.176], (0.0, 1.0))
    """
    lower = at_least(number, tested, error / 2)
    return lower, 1 - at_least(tested - number, tested, error / 2)


def most_wrong(tested: NDArray[Any], precision: float, error: float = ERROR) -> NDArray[np.int64]:
    """The most errors [k] in so many labels with which :func:`at_least` still shows a precision.

    -1 where there are too few labels to show it with no error at all.

    >>> most_wrong(np.array([58, 59, 92, 93]), 0.95).tolist()
    [-1, 0, 0, 1]
    """
    number = np.floor(np.asarray(tested) + 1e-9)
    most = np.asarray(scipy.stats.binom.ppf(error, number, 1 - precision))
    most -= scipy.stats.binom.cdf(most, number, 1 - precision) > error
    return most.astype(np.int64)


def fewest(precision: float, error: float = ERROR) -> int:
    """The number of labels that are needed to show a precision if all of them are right.

    >>> fewest(0.95), fewest(0.5)
    (59, 5)
    """
    return math.ceil(math.log(error) / math.log(precision) - 1e-9)


def chance_of_few(wrong: float, errors: float, fraction: float) -> float:
    """Largest chance to see at most so many errors in a sample, if there are so many in all.

    Each cell is in the sample with probability ``fraction``: the sample is drawn without
    replacement, of one class, or of several classes with this fraction of each. The number of
    errors in the sample is then a sum of independent zero-one variables with mean ``errors *
    fraction`` [1, 2], and a binomial with the same mean has the larger lower tail [3].

    [1] Vatutin and Mikhailov, Limit theorems for the number of empty cells, 1982. [2] A sum over
        classes of such sums is one too. [3] Hoeffding, On the distribution of the number of
        successes in independent trials, 1956.

    >>> round(chance_of_few(0, 100, 0.03), 4)
    0.0476
    """
    if wrong > errors * fraction - 1:  # Hoeffding's inequality holds up to here only
        return 1.0
    return float(scipy.stats.binom.cdf(wrong, math.floor(errors), fraction))


def most_errors(wrong: int, cells: int, fraction: float, error: float = ERROR) -> int:
    """Upper confidence bound of the errors among all cells, sampled ones included.

    Args:
        wrong: errors in the sample.
        cells: number of all cells.
        fraction: share of the cells that is sampled.
        error: chance that there are more errors than the bound.

    >>> most_errors(0, 5000, 0.03), most_errors(3, 4, 0.5)
    (98, 4)
    """
    low, high = wrong, cells  # `low` errors are plausible, more than `high` are not
    while low < high:
        middle = (low + high + 1) // 2
        if chance_of_few(wrong, middle, fraction) > error:
            low = middle
        else:
            high = middle - 1
    return low


def allowed_errors(
    cells: NDArray[Any], fraction: float, precision: float, error: float = ERROR
) -> NDArray[np.int64]:
    """The most errors [k] in a sample that still show a precision of the cells *not* sampled.

    -1 where the sample is too small to show it with no error at all. The errors among all cells are
    tested against the number that is allowed among those not sampled, so that no error can hide
    among them.

    Args:
        cells: [k] number of all cells beyond each threshold, sampled ones included.
        fraction: share of the cells that is sampled; expected, not realised.
        precision: share of the cells not sampled that must be right.
        error: chance of a wrong statement.

    >>> allowed_errors(np.array([1000, 3000, 6000]), 0.03, 0.95).tolist()
    [-1, 0, 3]
    """
    refuted = np.floor((1 - precision) * (1 - fraction) * np.asarray(cells) + 1e-9) + 1
    most = np.asarray(scipy.stats.binom.ppf(error, refuted, fraction))
    most -= scipy.stats.binom.cdf(most, refuted, fraction) > error
    return np.where(most > refuted * fraction - 1, -1, most).astype(np.int64)


def can_pass(cells: int, fraction: float, precision: float, error: float = ERROR) -> bool:
    """Whether so many cells, or fewer of them, can show a precision with no error in the sample.

    If not, :func:`allowed_errors` is -1 for them. The arguments are the same.

    >>> can_pass(1000, 0.03, 0.95), can_pass(3000, 0.03, 0.95)
    (False, True)
    """
    refuted = math.floor((1 - precision) * (1 - fraction) * cells + 1e-9) + 1
    return bool((1 - fraction) ** refuted <= error * (1 + 1e-9))


def needed_labels(precision: float, power: float = 0.8, share: float = 1 / 3) -> int:
    """The labels that a test needs to pass in most cases, if the errors are well below the limit.

    Args:
        precision: the precision to show.
        power: the chance to pass.
        share: the errors, as a share of those that are allowed.

    >>> needed_labels(0.95), needed_labels(0.8)
    (181, 44)
    """
    sizes = np.arange(fewest(precision), 200 * fewest(precision))
    most = np.asarray(scipy.stats.binom.ppf(ERROR, sizes, 1 - precision))
    most -= scipy.stats.binom.cdf(most, sizes, 1 - precision) > ERROR
    passes = scipy.stats.binom.cdf(most, sizes, share * (1 - precision)) >= power
    return int(sizes[np.argmax(passes)])


def expected_power(
    most: NDArray[np.int64], tested: Sequence[float] | NDArray[Any], rates: NDArray[Any]
) -> NDArray[np.float64]:
    """The chance [k] to see at most so many errors in so many labels, at these error rates."""
    numbers = np.round(np.asarray(tested))
    chance = scipy.stats.binom.cdf(np.maximum(most, 0), numbers, np.minimum(rates, 1.0))
    return np.where(most < 0, 0.0, chance)
