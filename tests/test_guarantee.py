"""Promises about labels: exact bounds, the sequence of tests, and how often a promise is broken."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.guarantee import Held, Judged, at_least, descend, fewest, make_promises


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


def alone(sure: Any, right: Any) -> Judged:
    """Each cell of an image of its own."""
    return Judged(sure, right, np.arange(len(sure)))


def judged(rng: Any, cells: int, chance: Any) -> Judged:
    """Cells that are right with a chance that depends on how sure the model is."""
    sure = rng.normal(1, 1, cells)
    return alone(sure, rng.random(cells) < chance(sure))


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
        assert exact.pvalue == pytest.approx(limit.doubt(precision))
        assert exact.pvalue <= 0.05 + 1e-9
    thresholds = [limit.threshold for limit in passed]
    assert thresholds == sorted(thresholds, reverse=True)
    assert all(threshold > 0 for threshold in thresholds)  # not against the odds
    if passed:  # none of the labels that are less sure had a say
        outside = second.sure < passed[-1].threshold
        flipped = second.right ^ outside
        again = descend(first, alone(second.sure, flipped), precision)
        assert again[: len(passed)] == passed


def test_where_to_start_is_decided_on_the_first_part() -> None:
    """A slip among the surest does not end everything, if the first part speaks for more."""
    sure = np.linspace(5, 1, 400)
    right = np.ones(400, dtype=bool)
    slipped = right.copy()
    slipped[[3, 40]] = False
    assert descend(alone(sure, right), alone(sure, slipped), 0.95)[-1].tested == 400
    nothing = alone(np.empty(0), np.empty(0, dtype=bool))
    assert descend(nothing, alone(sure, slipped), 0.95) == []  # 57 of 59 at the first rank
    assert descend(nothing, alone(sure, right), 0.95)[0].tested == 59


def test_a_false_promise_is_rare_where_every_threshold_is_just_not_good_enough() -> None:
    """Taking the best of all thresholds, or any that passes, would fail here by far."""
    rng, draws, made, any_passes = np.random.default_rng(7), 1500, 0, 0
    for _ in range(draws):
        first, second = (judged(rng, 600, lambda sure: 0.949 + 0 * sure) for _ in range(2))
        made += bool(descend(first, second, 0.95))
        ranks = np.argsort(-second.sure)[: int((second.sure > 0).sum())]
        right = np.cumsum(second.right[ranks])
        tested = np.arange(1, len(right) + 1)
        doubts = np.asarray(binom.sf(right - 1, tested, 0.95))
        any_passes += bool((doubts[58:] <= 0.05).any())
    assert made <= binom.ppf(0.999, draws, 0.05)
    assert any_passes > binom.ppf(0.999, draws, 0.1)


def test_cells_of_an_image_are_not_counted_as_if_they_were_alone() -> None:
    """Images that are easy or hard as a whole: a pool of sixty classes that is not good enough."""
    rng, draws, made = np.random.default_rng(8), 300, 0
    for _ in range(draws):
        hard = rng.random((200, 1)) < 0.06  # of these images every cell is wrong
        labels = np.where(np.broadcast_to(hard, (200, 60)), ABSENT, PRESENT)
        scores = 5 + rng.random((200, 60))
        labels[:2] = ABSENT  # so that every class has an absent label
        first, second = Held(scores[:100], labels[:100]), Held(scores[100:], labels[100:])
        made += bool(make_promises(first, second, 0.95, "pooled").present[0].basis)
    assert made <= binom.ppf(0.999, draws, 0.05)
    limit = Judged(np.ones(6), np.ones(6, dtype=bool), np.array([0, 0, 0, 1, 1, 1])).beyond(0.5)
    assert limit.tested / limit.alike == 2
    assert limit.precision == at_least(2, 2)


def test_nothing_is_said_against_the_odds() -> None:
    rng = np.random.default_rng(9)
    scores = rng.normal(-1, 0.3, (400, 3))
    labels = np.where(rng.random(scores.shape) < 0.4, PRESENT, ABSENT)
    held = Held(scores[:200], labels[:200]), Held(scores[200:], labels[200:])
    for guarantee in ("class", "pooled"):
        found = make_promises(*held, 0.3, guarantee)
        assert not (found.decide(scores) == PRESENT).any()


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
    assert made > 50
    # 5% are allowed; more than this would be seen once in a thousand times
    assert broken <= binom.ppf(0.999, made, 0.05)


def test_many_labels_give_a_class_its_own_promise_and_few_a_common_one() -> None:
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 4, (1000, 5))
    labels = np.where(rng.random(scores.shape) < 1 / (1 + np.exp(-3 * scores)), PRESENT, ABSENT)
    for j in range(1, 5):  # of four classes few are known, each in other images
        labels[np.arange(1000) % 500 // 100 != j, j] = 0
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
