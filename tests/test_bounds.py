"""Exact bounds, against enumeration of all samples and against scipy."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, hypergeom

from partlabel.metrics.bounds import (
    allowed_errors,
    at_least,
    can_pass,
    chance_of_few,
    fewest,
    interval,
    most_errors,
    needed_labels,
)


@given(st.integers(1, 400), st.data())
def test_the_bound_equals_the_exact_one_of_scipy(tested: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, tested))
    exact = binomtest(right, tested, alternative="greater").proportion_ci(0.95, "exact")
    assert at_least(right, tested) == pytest.approx(exact.low, abs=1e-9)
    both = binomtest(right, tested).proportion_ci(0.95, "exact")
    assert interval(right, tested) == pytest.approx((both.low, both.high), abs=1e-9)


@pytest.mark.parametrize("precision", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_the_fewest_labels_are_exactly_enough(precision: float) -> None:
    number = fewest(precision)
    assert at_least(number, number) >= precision - 1e-9
    assert at_least(number - 1, number - 1) < precision
    assert number < needed_labels(precision)


def test_the_chance_of_few_errors_is_never_too_small() -> None:
    """Against the sum of hypergeometric numbers of two classes, for all ways to share errors."""
    sizes, drawn = (40, 60), (8, 12)  # one fifth of each class
    for errors in (5, 10, 20, 35):
        for wrong in range(errors):
            bound = chance_of_few(wrong, errors, 0.2)
            for first in range(max(0, errors - sizes[1]), min(sizes[0], errors) + 1):
                counts = (first, errors - first)
                parts = [
                    hypergeom(size, count, number).pmf(np.arange(number + 1))
                    for size, count, number in zip(sizes, counts, drawn, strict=True)
                ]
                exact = float(np.convolve(parts[0], parts[1])[: wrong + 1].sum())
                assert bound >= exact - 1e-12


def test_the_number_of_errors_is_covered_by_all_samples() -> None:
    """All samples of 4 of 12 cells: too low a bound is rarer than stated."""
    for errors in range(13):
        wrong = np.arange(12) < errors
        covered = [
            most_errors(int(wrong[list(sample)].sum()), 12, 4 / 12) >= errors
            for sample in combinations(range(12), 4)
        ]
        assert np.mean(covered) >= 0.95


@given(
    st.integers(50, 5000),
    st.floats(0.01, 0.5),
    st.sampled_from([0.5, 0.8, 0.95]),
)
def test_allowed_errors_refute_every_larger_number(
    cells: int, fraction: float, precision: float
) -> None:
    most = int(allowed_errors(np.array([cells]), fraction, precision)[0])
    limit = int((1 - precision) * (1 - fraction) * cells + 1e-9)
    if most >= 0:
        assert chance_of_few(most, limit + 1, fraction) <= 0.05
        assert most_errors(most, cells, fraction) <= limit
    assert chance_of_few(most + 1, limit + 1, fraction) > 0.05


@given(st.integers(0, 5000), st.floats(0.001, 0.999), st.sampled_from([0.5, 0.8, 0.95]))
def test_what_cannot_pass_allows_no_error(cells: int, fraction: float, precision: float) -> None:
    allowed = allowed_errors(np.arange(cells + 1), fraction, precision)
    if not can_pass(cells, fraction, precision):
        assert (allowed == -1).all()
    elif fraction * cells > 5 * needed_labels(precision) and fraction < 0.5:
        assert allowed[-1] >= 0
