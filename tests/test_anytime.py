"""Bounds for samples without replacement that hold at every moment."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest, hypergeom

from partlabel.metrics.anytime import (
    Sampled,
    least_precision,
    log_mixture,
    log_probability,
    most_wrong,
    next_stratum,
    still_needed,
)

strata = st.lists(
    st.tuples(st.integers(1, 25), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=2
)


def sampled(parts: list[tuple[int, float, float]]) -> Sampled:
    size = [n for n, _, _ in parts]
    drawn = [round(share * n) for n, share, _ in parts]
    wrong = [round(bad * k) for k, (_, _, bad) in zip(drawn, parts, strict=True)]
    return Sampled.of(size, drawn, wrong)


def test_the_probability_of_a_sequence_is_that_of_the_hypergeometric_distribution() -> None:
    size, drawn, wrong, total = 30, 8, 3, 11
    sequences = math.comb(drawn, wrong)  # all orders are equally likely
    expected = hypergeom(size, total, drawn).logpmf(wrong) - math.log(sequences)
    one = log_probability(Sampled.of([size], [drawn], [wrong]), [total])
    assert one[0] == pytest.approx(expected)


def test_the_mixture_is_a_distribution_over_sequences() -> None:
    total = 0.0
    for wrong in range(7):
        one = np.exp(log_mixture(Sampled.of([50], [6], [wrong]), 0.9)[0])
        total += math.comb(6, wrong) * one
    assert total == pytest.approx(1)


@given(strata)
def test_the_bound_is_the_largest_total_that_is_not_excluded(
    parts: list[tuple[int, float, float]],
) -> None:
    one = sampled(parts)
    least = math.log(0.05) + log_mixture(one, 0.9).sum()
    ranges = [
        range(int(wrong), int(size - (drawn - wrong)) + 1)
        for size, drawn, wrong in zip(*one, strict=True)
    ]
    possible = [
        sum(totals)
        for totals in itertools.product(*ranges)
        if log_probability(one, totals).sum() >= least
    ]
    # between whole numbers more is possible, so the bound may be larger by a little
    assert max(possible) <= most_wrong(one, 0.9) <= max(possible) + len(parts)


@given(strata)
def test_an_answer_that_counts_as_wrong_never_helps(parts: list[tuple[int, float, float]]) -> None:
    """So labels that wait for an answer may count as wrong until they have one."""
    one = sampled(parts)
    for k in np.flatnonzero(one.wrong < one.drawn):
        worse = one.wrong + (np.arange(len(one.wrong)) == k)
        assert most_wrong(one._replace(wrong=worse), 0.9) >= most_wrong(one, 0.9)


def test_a_whole_sample_leaves_nothing_open() -> None:
    assert most_wrong(Sampled.of([40, 10], [40, 10], [3, 0]), 0.95) == 3


def test_what_is_missing_is_the_least_number_that_passes() -> None:
    one = Sampled.of([[5000.0], [300.0], [60.0]], [[0], [20], [10]], [[0], [1], [10]])
    missing = still_needed(one, 0.95)
    assert missing[2] == -1  # too many are wrong already
    for k in range(2):
        for more, passes in ((missing[k], True), (missing[k] - 1, False)):
            later = Sampled.of(one.size[k], one.drawn[k] + more, one.wrong[k])
            assert bool(least_precision(later, 0.95) >= 0.95) is passes
    assert 59 <= missing[0] <= 75


def test_draws_keep_to_the_proportions_of_the_strata() -> None:
    drawn = np.zeros(3)
    for _ in range(100):
        drawn[next_stratum(Sampled.of([600, 300, 100], drawn, [0, 0, 0]))] += 1
    assert np.abs(drawn - [60, 30, 10]).max() <= 2
    assert next_stratum(Sampled.of([2, 0], [2, 0], [0, 0])) == -1


@pytest.mark.parametrize("allocation", ["proportional", "even"])
def test_reviewers_who_stop_when_it_looks_best_are_wrong_as_rarely_as_stated(
    allocation: str,
) -> None:
    """400 reviewers watch the bound as they work, and take the best one that they ever see."""
    reviewers, steps, rng = 400, 120, np.random.default_rng(7)
    size, wrong = np.array([300, 150]), np.array([12, 21])  # 92.7% right
    truth = 1 - wrong.sum() / size.sum()
    hidden = [
        np.argsort(rng.random((reviewers, n)), axis=1) < k for n, k in zip(size, wrong, strict=True)
    ]
    drawn, errors = np.zeros((2, reviewers, 2))
    best = np.zeros(reviewers)
    for step in range(steps):
        stratum = int(step % 3 == 2) if allocation == "proportional" else step % 2
        errors[:, stratum] += hidden[stratum][:, int(drawn[0, stratum])]
        drawn[:, stratum] += 1
        if step % 4 == 3:
            now = Sampled(np.broadcast_to(size, drawn.shape).astype(float), drawn, errors)
            best = np.maximum(best, least_precision(now, 0.95))
    broken = int((best > truth).sum())
    assert binomtest(broken, reviewers, 0.05, alternative="greater").pvalue > 0.01
    assert best.mean() > 0.8  # a bound that says nothing would pass, too


def test_a_bound_for_one_moment_is_broken_more_often_by_those_who_watch() -> None:
    """The same reviewers with the usual bound for a sample of fixed size."""
    errors = np.cumsum(np.random.default_rng(7).random((400, 500)) < 0.06, axis=1)
    at = np.arange(20, 500)
    right = at - errors[:, at - 1]
    usual = np.asarray(beta.ppf(0.05, right, at - right + 1))
    assert (usual.max(axis=1) > 0.94).mean() > 0.1
