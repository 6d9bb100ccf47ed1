"""Promises about labels: exact bounds, the sequence of tests, and how often a promise is broken."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from partlabel.guarantee import Held, Judged, at_least, descend, fewest, make_promises
from partlabel.labels import ABSENT, PRESENT


@given(st.integers(1, 400), st.data())
def test_the_bound_is_scipys_exact_one(tested: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, tested))
    exact = binomtest(right, tested, alternative="greater").proportion_ci(0.95, "exact")
    assert at_least(right, tested) == pytest.approx(exact.low, abs=1e-9)


@pytest.mark.parametrize("precision", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_the_fewest_labels_are_just_enough(precision: float) -> None:
    number = fewest(precision)
    assert at_least(number, number) >= precision - 1e-9
    assert at_least(number - 1, number - 1) < precision


def judged(rng: Any, cells: int, chance: Any) -> Judged:
    """Cells that are right with a chance that depends on how sure the model is."""
    sure = rng.normal(1, 1, cells)
    return Judged(sure, rng.random(cells) < chance(sure))


@given(st.integers(0, 2**32), st.integers(0, 500), st.sampled_from([0.5, 0.8, 0.95]))
def test_thresholds_are_tested_downwards_until_one_fails(
    seed: int, cells: int, precision: float
) -> None:
    rng = np.random.default_rng(seed)
    first, second = (judged(rng, n, lambda sure: 0.8 + 0.1 * sure) for n in (cells, cells))
    passed = descend(first, second, precision)
    for limit in passed:
        inside = second.sure >= limit.threshold
        assert (limit.tested, limit.right) == (inside.sum(), second.right[inside].sum())
        exact = binomtest(limit.right, limit.tested, precision, alternative="greater")
        assert exact.pvalue <= 0.05 + 1e-9
    thresholds = [limit.threshold for limit in passed]
    assert thresholds == sorted(thresholds, reverse=True)
    assert all(threshold > 0 for threshold in thresholds)  # not against the odds
    if passed:  # none of the labels that are less sure had a say
        outside = second.sure < passed[-1].threshold
        flipped = second.right ^ outside
        again = descend(first, Judged(second.sure, flipped), precision)
        assert again[: len(passed)] == passed


def test_where_to_start_is_decided_on_the_first_part() -> None:
    """A slip among the surest does not end everything, if the first part speaks for more."""
    sure = np.linspace(5, 1, 400)
    right = np.ones(400, dtype=bool)
    slipped = right.copy()
    slipped[[3, 40]] = False
    assert descend(Judged(sure, right), Judged(sure, slipped), 0.95)[-1].tested == 400
    nothing = Judged(np.empty(0), np.empty(0, dtype=bool))
    assert descend(nothing, Judged(sure, slipped), 0.95) == []  # 57 of 59 at the first rank
    assert descend(nothing, Judged(sure, right), 0.95)[0].tested == 59


@pytest.mark.parametrize("guarantee", [None, "class", "pooled"])
def test_a_promise_is_broken_in_at_most_one_of_twenty_cases(guarantee: Any) -> None:
    """True precisions are known here: the chance of each cell is a function of its score."""
    rng, precision = np.random.default_rng(3), 0.9
    broken = made = 0
    for _ in range(150):
        offsets, noise = rng.normal(-1, 1, 6), rng.choice([0.3, 0.7, 1.5], 6)
        scores = rng.normal(0, 2.5, (1400, 6)) + offsets  # 700 to promise on, the rest to fill in
        chances = 1 / (1 + np.exp(-scores * noise + 0.3))
        labels = np.where(rng.random(scores.shape) < chances, PRESENT, ABSENT)
        known = np.where(rng.random(scores.shape) < 0.6, labels, 0)
        first, second = (Held(scores[rows], known[rows]) for rows in np.split(np.arange(700), 2))
        found = make_promises(first, second, precision, guarantee)
        for value in (PRESENT, ABSENT):
            truth = chances if value == PRESENT else 1 - chances
            decided = found.decide(scores[700:]) == value
            groups: dict[Any, list[int]] = {}
            for j, promise in enumerate(found.of(value)):
                if promise.basis and decided[:, j].any():
                    groups.setdefault(j if promise.basis == "class" else "pool", []).append(j)
            for classes in groups.values():
                made += 1
                broken += truth[700:, classes][decided[:, classes]].mean() < precision
    assert made > 100
    # 5% are allowed; more than this would be seen once in a thousand times
    assert broken <= binom.ppf(0.999, made, 0.05)


def test_many_labels_give_a_class_its_own_promise_and_few_a_common_one() -> None:
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 4, (1000, 5))
    labels = np.where(rng.random(scores.shape) < 1 / (1 + np.exp(-3 * scores)), PRESENT, ABSENT)
    labels[100:500, 1:] = labels[600:, 1:] = 0  # of four classes few are known
    first, second = Held(scores[:500], labels[:500]), Held(scores[500:], labels[500:])
    found = make_promises(first, second, 0.95)
    for value in (PRESENT, ABSENT):
        assert [promise.basis for promise in found.of(value)] == ["class"] + ["pooled"] * 4
        assert len({promise.limit for promise in found.of(value)[1:]}) == 1
    alone = make_promises(first, second, 0.95, "class")
    assert [promise.basis for promise in alone.present] == ["class", "", "", "", ""]
    together = make_promises(first, second, 0.95, "pooled")
    assert {promise.basis for promise in together.present} == {"pooled"}
    decided = found.decide(scores)
    assert (decided[scores > 8] == PRESENT).all()
    assert (decided[scores < -8] == ABSENT).all()
    assert (decided[np.abs(scores) < 0.01] == 0).all()


def test_nothing_is_promised_where_only_positives_are_known() -> None:
    rng = np.random.default_rng(5)
    scores = rng.normal(2, 1, (600, 2))
    labels = np.ones((600, 2), dtype=np.int8)
    labels[:, 1] = np.where(rng.random(600) < 0.1, ABSENT, PRESENT)
    held = Held(scores[:300], labels[:300]), Held(scores[300:], labels[300:])
    found = make_promises(*held, 0.8)
    assert [promise.basis for promise in found.present] == ["", "class"]
    assert not found.decide(scores)[:, 0].any()


def test_no_labels_no_promises() -> None:
    nothing = Held(np.empty((0, 3)), np.empty((0, 3), dtype=np.int8))
    found = make_promises(nothing, nothing, 0.95)
    assert all(math.isinf(promise.limit.threshold) for promise in found.present + found.absent)
    assert not found.decide(np.full((2, 3), 100.0)).any()
