"""Guarantees: exact bounds, the sequence of tests, and how often a guarantee is wrong."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.guarantee import (
    Basis,
    Held,
    LabelledCells,
    at_least,
    fewest,
    find_guarantees,
    passing_limits,
)

BASES: tuple[Basis, ...] = ("class", "pooled")


@given(st.integers(1, 400), st.data())
def test_the_bound_equals_the_exact_one_of_scipy(tested: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, tested))
    exact = binomtest(right, tested, alternative="greater").proportion_ci(0.95, "exact")
    assert at_least(right, tested) == pytest.approx(exact.low, abs=1e-9)


@pytest.mark.parametrize("precision", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_the_fewest_labels_are_exactly_enough(precision: float) -> None:
    number = fewest(precision)
    assert at_least(number, number) >= precision - 1e-9
    assert at_least(number - 1, number - 1) < precision


def one_per_image(confidence: Any, correct: Any) -> LabelledCells:
    """Cells that all belong to different images."""
    return LabelledCells(confidence, correct, np.arange(len(confidence)))


def random_cells(rng: Any, number: int, probability: Any) -> LabelledCells:
    """Cells that are correct with a probability that is a function of the confidence."""
    confidence = rng.normal(1, 1, number)
    return one_per_image(confidence, rng.random(number) < probability(confidence))


@given(st.integers(0, 2**32), st.integers(0, 500), st.sampled_from([0.5, 0.8, 0.95]))
def test_thresholds_are_tested_in_descending_order_until_one_fails(
    seed: int, cells: int, precision: float
) -> None:
    rng = np.random.default_rng(seed)
    first, second = (
        random_cells(rng, cells, lambda confidence: 0.8 + 0.1 * confidence) for _ in range(2)
    )
    passed = passing_limits(first, second, precision)
    for limit in passed:
        inside = second.confidence >= limit.threshold
        assert (limit.tested, limit.right) == (inside.sum(), second.correct[inside].sum())
        exact = binomtest(limit.right, limit.tested, precision, alternative="greater")
        assert exact.pvalue == pytest.approx(limit.p_value(precision))
        assert exact.pvalue <= 0.05 + 1e-9
    thresholds = [limit.threshold for limit in passed]
    assert thresholds == sorted(thresholds, reverse=True)
    assert all(threshold > 0 for threshold in thresholds)  # right is more likely than wrong
    if passed:  # labels below the last threshold have no influence
        outside = second.confidence < passed[-1].threshold
        flipped = one_per_image(second.confidence, second.correct ^ outside)
        again = passing_limits(first, flipped, precision)
        assert again[: len(passed)] == passed


def test_where_to_start_is_decided_on_the_first_part() -> None:
    """Two errors at high confidence do not end the sequence if it starts at a lower threshold."""
    confidence = np.linspace(5, 1, 400)
    correct = np.ones(400, dtype=bool)
    two_errors = correct.copy()
    two_errors[[3, 40]] = False
    faultless, faulty = (one_per_image(confidence, values) for values in (correct, two_errors))
    assert passing_limits(faultless, faulty, 0.95)[-1].tested == 400
    nothing = one_per_image(np.empty(0), np.empty(0, dtype=bool))
    assert passing_limits(nothing, faulty, 0.95) == []  # 57 of 59 at the first rank
    assert passing_limits(nothing, faultless, 0.95)[0].tested == 59


def test_wrong_guarantees_are_rare_if_every_threshold_is_slightly_too_imprecise() -> None:
    """Accepting any threshold that passes would be wrong far more often than in 5% of cases."""
    rng, draws, made, any_passes = np.random.default_rng(7), 1500, 0, 0
    for _ in range(draws):
        first, second = (
            random_cells(rng, 600, lambda confidence: 0.949 + 0 * confidence) for _ in range(2)
        )
        made += bool(passing_limits(first, second, 0.95))
        order = np.argsort(-second.confidence)[: int((second.confidence > 0).sum())]
        right = np.cumsum(second.correct[order])
        tested = np.arange(1, len(right) + 1)
        p_values = np.asarray(binom.sf(right - 1, tested, 0.95))
        any_passes += bool((p_values[58:] <= 0.05).any())
    assert made <= binom.ppf(0.999, draws, 0.05)
    assert any_passes > binom.ppf(0.999, draws, 0.1)


def test_cells_of_an_image_do_not_count_as_independent() -> None:
    """A pool of 60 classes that is not precise enough; an image is easy or hard as a whole."""
    rng, draws, made = np.random.default_rng(8), 300, 0
    for _ in range(draws):
        hard = rng.random((200, 1)) < 0.06  # every cell of these images is wrong
        labels = np.where(np.broadcast_to(hard, (200, 60)), ABSENT, PRESENT)
        scores = 5 + rng.random((200, 60))
        labels[:2] = ABSENT  # so that every class has an absent label
        first, second = Held(scores[:100], labels[:100]), Held(scores[100:], labels[100:])
        made += bool(find_guarantees(first, second, 0.95, "pooled").present[0].basis)
    assert made <= binom.ppf(0.999, draws, 0.05)
    cells = LabelledCells(np.ones(6), np.ones(6, dtype=bool), np.array([0, 0, 0, 1, 1, 1]))
    limit = cells.at_threshold(0.5)
    assert limit.counted_as == 2
    assert limit.precision == at_least(2, 2)


def test_labels_more_likely_wrong_than_right_are_never_filled_in() -> None:
    rng = np.random.default_rng(9)
    scores = rng.normal(-1, 0.3, (400, 3))
    labels = np.where(rng.random(scores.shape) < 0.4, PRESENT, ABSENT)
    held = Held(scores[:200], labels[:200]), Held(scores[200:], labels[200:])
    for basis in BASES:
        guarantees = find_guarantees(*held, 0.3, basis)
        assert not (guarantees.decide(scores) == PRESENT).any()


@pytest.mark.parametrize("basis", [None, *BASES])
def test_at_most_one_guarantee_of_twenty_is_wrong(basis: Basis | None) -> None:
    """The true precision is known: the probability of each cell is a function of its score."""
    rng, precision = np.random.default_rng(3), 0.9
    wrong = made = 0
    for _ in range(150):
        offsets, noise = rng.normal(-1, 1, 6), rng.choice([0.3, 0.7, 1.5], 6)
        scores = (
            rng.normal(0, 2.5, (1400, 6)) + offsets
        )  # 700 images to test on, the rest to fill in
        probabilities = 1 / (1 + np.exp(-scores * noise + 0.3))
        labels = np.where(rng.random(scores.shape) < probabilities, PRESENT, ABSENT)
        known = np.where(rng.random(scores.shape) < 0.6, labels, 0)
        first, second = (Held(scores[rows], known[rows]) for rows in np.split(np.arange(700), 2))
        guarantees = find_guarantees(first, second, precision, basis)
        for value in (PRESENT, ABSENT):
            truth = probabilities if value == PRESENT else 1 - probabilities
            decided = guarantees.decide(scores[700:]) == value
            groups: dict[Any, list[int]] = {}
            for j, guarantee in enumerate(guarantees.of(value)):
                if guarantee.basis and decided[:, j].any():
                    groups.setdefault(j if guarantee.basis == "class" else "pool", []).append(j)
            for classes in groups.values():
                made += 1
                wrong += truth[700:, classes][decided[:, classes]].mean() < precision
    assert made > 50
    # 5% may be wrong; more than this would happen by chance once in a thousand times
    assert wrong <= binom.ppf(0.999, made, 0.05)


def test_classes_with_few_labels_are_pooled() -> None:
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 4, (1000, 5))
    labels = np.where(rng.random(scores.shape) < 1 / (1 + np.exp(-3 * scores)), PRESENT, ABSENT)
    for j in range(1, 5):  # four classes have few known labels, in different images
        labels[np.arange(1000) % 500 // 100 != j, j] = 0
    first, second = Held(scores[:500], labels[:500]), Held(scores[500:], labels[500:])
    guarantees = find_guarantees(first, second, 0.95)
    for value in (PRESENT, ABSENT):
        assert [guarantee.basis for guarantee in guarantees.of(value)] == ["class"] + ["pooled"] * 4
        assert len({guarantee.limit for guarantee in guarantees.of(value)[1:]}) == 1
    alone = find_guarantees(first, second, 0.95, "class")
    assert [guarantee.basis for guarantee in alone.present] == ["class", None, None, None, None]
    together = find_guarantees(first, second, 0.95, "pooled")
    assert {guarantee.basis for guarantee in together.present} == {"pooled"}
    decided = guarantees.decide(scores)
    assert (decided[scores > 8] == PRESENT).all()
    assert (decided[scores < -8] == ABSENT).all()
    assert (decided[np.abs(scores) < 0.01] == 0).all()


def test_no_guarantee_if_only_positives_are_known() -> None:
    rng = np.random.default_rng(5)
    scores = rng.normal(2, 1, (600, 2))
    labels = np.ones((600, 2), dtype=np.int8)
    labels[:, 1] = np.where(rng.random(600) < 0.1, ABSENT, PRESENT)
    held = Held(scores[:300], labels[:300]), Held(scores[300:], labels[300:])
    guarantees = find_guarantees(*held, 0.8)
    assert [guarantee.basis for guarantee in guarantees.present] == [None, "class"]
    assert not guarantees.decide(scores)[:, 0].any()


def test_no_guarantee_without_labels() -> None:
    nothing = Held(np.empty((0, 3)), np.empty((0, 3), dtype=np.int8))
    guarantees = find_guarantees(nothing, nothing, 0.95)
    assert all(math.isinf(one.limit.threshold) for one in guarantees.present + guarantees.absent)
    assert not guarantees.decide(np.full((2, 3), 100.0)).any()
