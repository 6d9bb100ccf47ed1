"""How far down a ranking a precision holds, shown by a random sample of the ranked cells."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

_STEP = 1.1  # ratio of the numbers of labels of two tests, one after the other
_ERROR = 0.05  # the chance of a wrong statement
_LATER = 0.8  # share of it for the tests that start in the middle; the others start at a quarter


def largest_passing(
    correct: NDArray[np.bool_], precision: float, to_show: NDArray[np.float64] | None = None
) -> int:
    """The number of sampled cells, from the most confident one on, whose ranks hold a precision.

    The cells that rank at least as high as the last of these are correct with at least the given
    precision, with a confidence of 95%. The first test is that of the first half of the sample.
    While tests pass, longer parts are tested, and the first failure ends the sequence. If the first
    test fails, the sequence starts again at a quarter. All parts depend on the size of the sample
    alone; both sequences share the chance of an error. A random sample without replacement from a
    finite population has fewer errors of this kind than the binomial test allows for.

    Args:
        correct: [k] whether the model is right about each sampled cell, the most confident first.
        precision: the precision to show; the size of the first test depends on it.
        to_show: [k] the precision to show down to each sampled cell, if it is not the same. It must
            not depend on the sample.

    >>> largest_passing(np.ones(200, dtype=bool), 0.95), largest_passing(np.ones(50, bool), 0.95)
    (200, 0)
    """
    right = np.cumsum(correct, dtype=np.int64)
    limits = np.full(len(correct), precision) if to_show is None else to_show
    middle = max(len(correct) // 2, _fewest(precision, _LATER * _ERROR))
    first = max(len(correct) // 4, _fewest(precision, (1 - _LATER) * _ERROR))
    passed = _descend(right, limits, (middle, len(correct)), _LATER * _ERROR)
    return passed or _descend(right, limits, (first, middle - 1), (1 - _LATER) * _ERROR)


def p_value(right: int, tested: int, precision: float) -> float:
    """The chance of as many right labels if the true precision is the given one, or lower."""
    return float(betainc(right, tested - right + 1, precision)) if right else 1.0


def _descend(
    right: NDArray[np.int64], limits: NDArray[np.float64], ends: tuple[int, int], error: float
) -> int:
    """Test the cells up to the first end, then more and more, until a test fails or the last."""
    passed, (number, last) = 0, ends
    last = min(last, len(right))
    while number <= last:
        if p_value(int(right[number - 1]), number, float(limits[number - 1])) > error:
            break
        passed = number
        number = last if passed < last < passed * _STEP else max(passed + 1, int(passed * _STEP))
    return passed


def _fewest(precision: float, error: float) -> int:
    """The number of labels that pass a test if all of them are right."""
    return math.ceil(math.log(error) / math.log(precision) - 1e-9)
