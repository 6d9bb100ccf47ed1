"""Which labels to ask for: the mathematics, against independent computations."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import binom, entropy

from partlabel import LabelTable
from partlabel.judging.scoring import Scored
from partlabel.judging.suggestion.allotment import allot
from partlabel.judging.suggestion.asking import Askable, by_information, by_ordering, whole_images
from partlabel.judging.suggestion.drawn import find_zone, guarantee_of, precision_to_show
from partlabel.judging.suggestion.orderings import ORDERINGS, ClassCells
from partlabel.judging.suggestion.posterior import Posterior, choose_spread, leave_one_out
from partlabel.labels import CHOSEN, RANDOM, Details
from partlabel.labels.cells import from_triples
from partlabel.metrics.ranked_sample import largest_passing, p_value


def covariance_of_weights(features: np.ndarray, weights: np.ndarray, prior: float) -> np.ndarray:
    """The posterior of the weights, the intercept last: inverse of the whole Hessian."""
    inputs = np.column_stack([features, np.ones(len(features))])
    hessian = prior * np.eye(inputs.shape[1]) + (inputs * weights[:, None]).T @ inputs
    return np.linalg.inv(hessian)


def test_the_posterior_is_that_of_the_whole_hessian() -> None:
    draw = np.random.default_rng(0)
    known, new = draw.normal(size=(7, 4)), draw.normal(size=(5, 4))
    weights = draw.uniform(0, 0.25, 7)
    inputs = np.column_stack([new, np.ones(5)])
    expected = inputs @ covariance_of_weights(known, weights, 0.3) @ inputs.T
    logits = Posterior(known, weights, 0.3).of(new)
    np.testing.assert_allclose(logits.variance, np.diag(expected))
    rows = [logits.covariance_with(position) for position in range(5)]
    np.testing.assert_allclose(rows, expected)
    nothing = Posterior(known[:0], weights[:0], 0.3).of(new)
    np.testing.assert_allclose(nothing.variance, (inputs**2).sum(axis=1) / 0.3)


def test_cells_are_chosen_with_what_was_chosen_before() -> None:
    draw = np.random.default_rng(1)
    known, new = draw.normal(size=(6, 3)), draw.normal(size=(20, 3))
    known_weights, weights = draw.uniform(0, 0.25, 6), draw.uniform(0.01, 0.25, 20)
    value = draw.uniform(size=20)
    chosen = choose_spread(Posterior(known, known_weights, 0.5).of(new), weights, 6, value)
    inputs = np.column_stack([new, np.ones(20)])
    for step, (position, gain) in enumerate(zip(*chosen, strict=True)):
        before = chosen.positions[:step]
        features = np.concatenate([known, new[before]])
        all_weights = np.concatenate([known_weights, weights[before]])
        covariance = covariance_of_weights(features, all_weights, 0.5)
        variance = np.einsum("ij,jk,ik->i", inputs, covariance, inputs)
        gains = value * np.log(1 + weights * variance) / 2
        gains[before] = -1
        assert position == np.argmax(gains)
        assert gain == pytest.approx(gains.max())


def test_information_is_half_the_log_determinant_of_what_labels_take_away() -> None:
    draw = np.random.default_rng(2)
    known, weights = draw.normal(size=(7, 4)), draw.uniform(0, 0.25, 7)
    before = np.linalg.slogdet(covariance_of_weights(known[:0], weights[:0], 0.3))[1]
    after = np.linalg.slogdet(covariance_of_weights(known, weights, 0.3))[1]
    assert Posterior(known, weights, 0.3).information == pytest.approx((before - after) / 2)
    chosen = choose_spread(Posterior(known[:0], weights[:0], 0.3).of(known), weights, 7)
    assert chosen.gains.sum() == pytest.approx((before - after) / 2)


def test_leaving_one_out_is_close_to_training_without_it() -> None:
    draw = np.random.default_rng(2)
    features = draw.normal(size=(60, 3)) / 2
    labels = np.where(draw.uniform(size=60) < expit(4 * features[:, 0]), 1, -1).astype(np.int8)
    inputs = np.column_stack([features, np.ones(60)])

    def train(rows: np.ndarray) -> np.ndarray:
        def cost(weights: np.ndarray) -> float:
            logits = inputs[rows] @ weights
            return float(np.logaddexp(0, -labels[rows] * logits).sum() + weights @ weights / 2)

        return np.asarray(minimize(cost, np.zeros(4), method="BFGS").x)

    logits = inputs @ train(np.arange(60))
    variance = Posterior(features, expit(logits) * expit(-logits), 1.0).of(features).variance
    found = leave_one_out(logits, labels, variance)
    exact = [inputs[i] @ train(np.delete(np.arange(60), i)) for i in range(0, 60, 6)]
    before = np.abs(logits[::6] - exact).max()
    assert np.abs(found[::6] - exact).max() < 0.1 * before


def test_orderings() -> None:
    logits = np.array([-3.0, -0.1, 0.5, 4.0])
    cells = ClassCells(0, np.arange(4), logits, np.array([0.3, 0.1, 0.9, 0.2]))
    shares = expit(logits)
    expected = entropy(np.stack([shares, 1 - shares]))
    np.testing.assert_allclose(ORDERINGS["entropy"](cells), expected)
    orders = {name: np.argsort(-order(cells)).tolist() for name, order in ORDERINGS.items()}
    assert orders == {
        "random": [2, 0, 3, 1],
        "entropy": [1, 2, 0, 3],
        "margin": [1, 2, 0, 3],
        "most-likely-present": [3, 2, 1, 0],
    }


def test_questions_are_allotted_up_to_what_is_available() -> None:
    draw = np.random.default_rng(3)
    for _ in range(50):
        available = draw.integers(0, 30, 6)
        budget = int(draw.integers(1, 100))
        numbers = allot(budget, draw.uniform(size=6) ** 4, available)
        assert (numbers <= available).all()
        assert numbers.sum() == min(budget, available.sum())
    assert allot(9, np.array([2.0, 1.0]), np.array([50, 50])).tolist() == [6, 3]


def test_p_value() -> None:
    for right, tested in ((59, 59), (92, 93), (0, 3), (140, 150)):
        assert p_value(right, tested, 0.95) == pytest.approx(binom.sf(right - 1, tested, 0.95))


def test_a_ranking_that_breaks_the_precision_rarely_passes() -> None:
    draw = np.random.default_rng(4)
    # the precision falls with the rank, and is just below 95% from the first rank on that is tested
    broken, found = 0, []
    for _ in range(400):
        population = draw.uniform(size=3000) < np.linspace(0.975, 0.92, 3000)
        sample = np.sort(draw.choice(3000, 300, replace=False))
        passed = largest_passing(population[sample], 0.95)
        if passed:
            broken += population[: sample[passed - 1] + 1].mean() < 0.95
    assert broken / 400 <= 0.05
    for _ in range(100):
        population = draw.uniform(size=3000) < np.linspace(1.0, 0.97, 3000)
        sample = np.sort(draw.choice(3000, 300, replace=False))
        found.append(largest_passing(population[sample], 0.95))
    assert np.mean(np.array(found) > 0) > 0.85
    assert largest_passing(np.zeros(0, dtype=np.bool_), 0.95) == 0


def scored_table(asked: bool = False) -> Scored:
    """A table of 400 images and 3 classes, with scores that are right about one class."""
    draw = np.random.default_rng(5)
    truth = np.where(draw.uniform(size=(400, 3)) < 0.4, 1, -1)
    logits = np.stack([6 * truth[:, 0], draw.normal(size=400), -3 + draw.normal(size=400)], axis=1)
    known = draw.uniform(size=(400, 3)) < 0.1
    rows, columns = np.nonzero(known)
    values = truth[rows, columns].astype(np.int8)
    cells = from_triples(rows, columns, values, (400, 3), Details())
    ids, classes = [f"{i}.jpg" for i in range(400)], ["a", "b", "c"]
    table = LabelTable.from_cells(ids, classes, cells, None)
    return Scored(table, expit(logits), [])


def test_a_zone_is_drawn_in_the_order_of_its_random_numbers() -> None:
    scored = scored_table()
    zone = find_zone(scored)
    logits = np.log(scored.scores / (1 - scored.scores))
    np.testing.assert_allclose(zone.logits, logits[zone.rows, zone.columns])
    known = scored.table.dense() != 0
    assert not known[zone.rows, zone.columns].any()
    size = round(expit(logits[~known]).sum() / 2)
    np.testing.assert_allclose(zone.logits, np.sort(logits[~known])[::-1][:size])
    everywhere = find_zone(scored, anywhere=True)
    assert len(everywhere.logits) == (~known).sum()
    positions, probability = zone.next_draws(20)
    lowest = np.sort(zone.draws)
    np.testing.assert_array_equal(zone.draws[positions], lowest[:20])
    assert probability == lowest[20]
    assert zone.next_draws(10**6)[1] == 1.0


def test_only_answers_below_the_first_gap_test() -> None:
    scored = scored_table()
    zone = find_zone(scored)
    order = np.argsort(zone.draws)
    for gap, tested in ((None, 80), (70, 70), (0, 0)):
        asked = order[:80] if gap is None else np.delete(order[:90], gap)
        values = np.ones(len(asked), dtype=np.int8)
        details = Details(asked=np.full(len(asked), RANDOM, dtype=np.int8))
        cells = from_triples(zone.rows[asked], zone.columns[asked], values, (400, 3), details)
        answers = scored.table.with_cells(cells)
        later = scored.table.merge(answers)
        guarantee = guarantee_of(zone.with_answers(later), 0.95)
        again = find_zone(Scored(later, scored.scores, []))  # of a run that has these labels
        assert guarantee_of(again, 0.95) == guarantee
        assert guarantee.tested == (tested if tested >= 63 else 0)
        assert guarantee.right == guarantee.tested
        inside = zone.logits >= guarantee.threshold
        assert guarantee.filled == inside.sum() - np.isin(np.flatnonzero(inside), asked).sum()


def test_labels_that_were_chosen_count_with_their_known_errors() -> None:
    scored = scored_table()
    zone = find_zone(scored)
    order = np.argsort(zone.draws)
    drawn, chosen = order[:140], order[140:150]
    for wrong in (0, 8):
        values = np.ones(150, dtype=np.int8)
        values[140 : 140 + wrong] = -1
        asked = np.repeat([RANDOM, CHOSEN], [140, 10]).astype(np.int8)
        cells = np.concatenate([drawn, chosen])
        where = zone.rows[cells], zone.columns[cells]
        later = from_triples(*where, values, (400, 3), Details(asked=asked))
        table = scored.table.merge(scored.table.with_cells(later))
        guarantee = guarantee_of(zone.with_answers(table), 0.95)
        assert guarantee.tested == 140
        assert guarantee.filled == len(zone.logits) - 150
        to_show = precision_to_show(zone.with_answers(table), 0.95)
        others = len(zone.logits) - 10
        assert to_show[-1] == pytest.approx(1 - (0.05 * others + wrong) / len(zone.logits))


def test_cells_are_chosen_per_class_or_over_all() -> None:
    scored = scored_table()
    askable = Askable(scored)
    known = scored.table.dense() != 0
    np.testing.assert_array_equal(askable.unknown, (~known).sum(axis=0))
    picked = by_ordering(askable, "most-likely-present", 30)
    scores = np.where(known, -1, scored.scores)
    expected = np.sort(scores.ravel())[::-1][:30]
    np.testing.assert_allclose(picked.gains, expected)
    margins = by_ordering(askable, "margin", 30)
    np.testing.assert_array_equal(np.bincount(margins.columns), [10, 10, 10])
    drawn = by_ordering(askable, "random", 1)
    taken = Askable(scored, frozenset([int(drawn.rows[0]) * 3 + int(drawn.columns[0])]))
    again = by_ordering(taken, "random", 1)
    assert (drawn.rows[0], drawn.columns[0]) != (again.rows[0], again.columns[0])
    assert taken.unknown.sum() == askable.unknown.sum() - 1


def test_information_prefers_uncertain_cells_of_rare_classes_in_unlike_images() -> None:
    scored = scored_table()
    draw = np.random.default_rng(6)
    features = draw.normal(size=(400, 8)).astype(np.float32) / math.sqrt(8)
    features[200:] = features[:200]  # twins
    askable = Askable(scored)
    picked = by_information(askable, lambda rows: features[rows], 60)
    assert (scored.table.dense()[picked.rows, picked.columns] == 0).all()
    numbers = np.bincount(picked.columns, minlength=3)
    assert np.argsort(numbers).tolist() == np.argsort(-askable.present, kind="stable").tolist()
    own = picked.rows[picked.columns == 1][:8]
    assert len(np.unique(own % 200)) == len(own)  # no image beside its twin
    rows, gains = whole_images(askable, lambda rows: features[rows], 6)
    assert len(np.unique(rows % 200)) == 6
    assert (gains > 0).all()
