"""Guarantees: the sequence of tests, pools of classes, and how often a guarantee is wrong."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.bounds import allowed_errors, at_least, chance_of_few
from partlabel.metrics.guarantee import find_guarantees, nothing_guaranteed
from partlabel.metrics.guarantee_thresholds import passing_limits, prospect_of
from partlabel.metrics.known_cells import KnownCells, known_cells
from partlabel.metrics.sampling import Basis, Population, Sample, Unit, draw_sample
from populations import population_of

BASES: tuple[Basis, ...] = ("class", "pooled")
UNITS: tuple[Unit, ...] = ("cell", "image")


def make_sample(
    confidence: Any, wrong: Any, reserved: Any, unit: Unit = "cell", image: Any = None
) -> Sample:
    """Cells in the order of their confidence; each of its own image unless images are given."""
    order = np.argsort(-np.asarray(confidence), kind="stable")
    images = np.arange(len(order)) if image is None else image
    fraction = float(np.mean(reserved))
    return Sample(
        np.asarray(confidence)[order],
        np.asarray(reserved)[order],
        (np.asarray(wrong) & np.asarray(reserved))[order],
        np.asarray(images)[order],
        fraction,
        unit,
    )


def random_sample(rng: Any, cells: int, rate: float, fraction: float) -> tuple[Sample, Any]:
    """A sample of cells that are wrong at a rate, and which of all its cells are wrong."""
    confidence = np.sort(rng.random(cells))[::-1] + 0.1
    wrong, reserved = rng.random(cells) < rate, np.zeros(cells, dtype=bool)
    reserved[rng.permutation(cells)[: round(fraction * cells)]] = True
    return make_sample(confidence, wrong, reserved), wrong


@given(st.integers(0, 2**32), st.integers(30, 4000), st.sampled_from([0.5, 0.8, 0.95]))
def test_thresholds_are_tested_in_descending_order_until_one_fails(
    seed: int, cells: int, precision: float
) -> None:
    sample, _ = random_sample(np.random.default_rng(seed), cells, (1 - precision) / 3, 0.1)
    limits = passing_limits(None, sample, precision, 0.0)
    thresholds = [limit.threshold for limit in limits]
    assert thresholds == sorted(thresholds, reverse=True)
    for limit in limits:
        inside = sample.confidence >= limit.threshold
        wrong = int(sample.wrong[inside].sum())
        assert limit.tested == sample.reserved[inside].sum()
        assert limit.right == limit.tested - wrong
        assert limit.cells == inside.sum() - limit.tested
        assert limit.precision >= precision - 1e-9
        refuted = math.floor((1 - precision) * (1 - sample.fraction) * inside.sum() + 1e-9) + 1
        assert chance_of_few(wrong, refuted, sample.fraction) <= 0.05
    if limits:  # labels below the last threshold have no influence
        outside = sample.confidence < limits[-1].threshold
        flipped = sample._replace(wrong=sample.wrong ^ (outside & sample.reserved))
        again = passing_limits(None, flipped, precision, 0.0)
        assert again[: len(limits)] == limits


def test_where_to_start_is_decided_on_the_first_part() -> None:
    """Two errors at high confidence do not end the sequence if it starts at a lower threshold."""
    confidence = np.linspace(5, 1, 4000)
    reserved = np.arange(4000) % 10 == 0
    wrong = np.isin(np.arange(4000), [30, 400])
    faulty = make_sample(confidence, wrong, reserved)
    everything = np.ones(4000, dtype=bool)
    strict = make_sample(confidence, np.arange(4000) > 700, everything)  # wrong further down
    even = make_sample(confidence, np.arange(4000) % 300 == 299, everything)
    assert passing_limits(strict, faulty, 0.95, 0.0) == []
    assert passing_limits(even, faulty, 0.95, 0.0)[-1].tested == 400
    assert passing_limits(None, faulty, 0.95, 0.0)[-1].tested == 400


def test_wrong_guarantees_are_rare_if_every_threshold_is_slightly_too_imprecise() -> None:
    """Accepting any threshold that passes would be wrong in more than 5% of cases."""
    rng, draws, broken, any_passes = np.random.default_rng(7), 600, 0, 0
    for _ in range(draws):
        sample, wrong = random_sample(rng, 3000, 0.051, 0.1)
        limits = passing_limits(None, sample, 0.95, 0.0)
        if limits:
            inside = (sample.confidence >= limits[-1].threshold) & ~sample.reserved
            broken += wrong[inside].mean() > 0.05
        ranks = np.arange(700, 3000, 20)
        errors = np.cumsum(sample.wrong)[ranks - 1]
        any_passes += bool((errors <= allowed_errors(ranks, 0.1, 0.95)).any())
    assert broken <= binom.ppf(0.999, draws, 0.05)
    assert any_passes > binom.ppf(0.99, draws, 0.05)


def test_without_labels_that_choose_cells_of_one_image_count_as_one_by_the_design_effect() -> None:
    """Of the images 6% are wrong in all of their eight cells, so 95% must rarely pass."""
    rng, draws, made = np.random.default_rng(8), 200, 0
    image = np.repeat(np.arange(150), 8)
    for _ in range(draws):
        hard = np.repeat(rng.random(150) < 0.06, 8)
        reserved = np.repeat(np.arange(150) % 2 == 0, 8)
        confidence = 5 + np.repeat(rng.random(150), 8)  # alike, as errors are
        sample = make_sample(confidence, hard, reserved, "image", image)
        made += bool(passing_limits(None, sample, 0.95, 0.0))
    assert made <= binom.ppf(0.999, draws, 0.05)
    alone = make_sample(np.ones(100), np.zeros(100, bool), np.ones(100, bool), "image")
    assert passing_limits(None, alone, 0.95, 0.0)[-1].precision == at_least(100, 100)


def test_each_image_counts_once_if_images_are_drawn() -> None:
    """Of the images 6% are wrong in all of their one to eight cells, so 95% must rarely pass."""
    rng, draws, made = np.random.default_rng(9), 300, 0
    sure = make_sample(np.full(500, 3.0), np.zeros(500, bool), np.ones(500, bool))
    for _ in range(draws):
        cells = rng.integers(1, 9, 600)
        image = np.repeat(np.arange(600), cells)
        wrong = np.repeat(rng.random(600) < 0.06, cells)
        tests = np.repeat(rng.permutation(600) < 200, cells)
        sample = make_sample(np.full(len(image), 3.0), wrong, tests, "image", image)
        made += bool(passing_limits(sure, sample, 0.95, 0.0))
    assert made <= binom.ppf(0.999, draws, 0.05)


def test_images_with_many_wrong_cells_do_not_pass_if_the_test_has_them() -> None:
    """Most images have one correct cell; a few have ten wrong ones, a third of all cells."""
    cells = np.where(np.arange(200) < 8, 10, 1)
    image = np.repeat(np.arange(200), cells)
    wrong, tests = np.repeat(cells > 1, cells), np.ones(len(image), dtype=bool)
    sure = make_sample(np.full(500, 3.0), np.zeros(500, bool), np.ones(500, bool))
    sample = make_sample(np.full(len(image), 3.0), wrong, tests, "image", image)
    assert passing_limits(sure, sample, 0.9, 0.0) == []
    alone = make_sample(np.full(200, 3.0), cells > 1, np.ones(200, dtype=bool), "image")
    assert passing_limits(sure, alone, 0.9, 0.0)


class World(NamedTuple):
    """Arrays [n, C]: scores, labels that choose, labels that test, what is unknown, and draws."""

    scores: Any
    chosen: Any
    tested: Any
    unknown: Any
    draws: Any
    truth: Any

    def first(self, shift: float = 0.0) -> KnownCells:
        """The labels that choose."""
        return known_cells(self.scores + shift, self.chosen)

    def population(self, unit: Unit, shift: float = 0.0) -> Population:
        """The others."""
        groups = np.zeros(len(self.scores), dtype=np.int64)
        arrays = self.scores + shift, self.tested, self.unknown, self.draws
        return population_of(*arrays, groups, unit)


def make_world(rng: Any, images: int, classes: int, unit: Unit, slopes: Any = 1.0) -> World:
    """Scores that are not quite calibrated, and labels."""
    scores = rng.normal(-0.5, 2.5, (images, classes)) + rng.normal(0, 0.5, classes)
    truth = np.where(rng.random(scores.shape) < 1 / (1 + np.exp(-scores * slopes)), 1, -1)
    part = rng.random(scores.shape)
    known = part < rng.choice([0.1, 0.3], classes) if unit == "cell" else part[:, :1] < 0.3
    chosen = known & (rng.random(scores.shape) < 0.5)
    return World(
        scores,
        np.where(chosen, truth, 0),
        np.where(known & ~chosen, truth, 0),
        np.broadcast_to(~known, scores.shape),
        rng.random(scores.shape),
        truth,
    )


@pytest.mark.parametrize("basis", [None, *BASES])
@pytest.mark.parametrize("unit", UNITS)
def test_at_most_one_guarantee_of_twenty_is_wrong(basis: Basis | None, unit: Unit) -> None:
    """The true labels are known here, and classes have different shares of known labels."""
    rng, precision = np.random.default_rng(3), 0.85
    broken = made = 0
    for _ in range(40):
        world = make_world(rng, 1500, 6, unit, rng.choice([0.4, 1.0], 6))
        population = world.population(unit)
        guarantees = find_guarantees(world.first(), population, precision, basis)
        decided = np.where(world.unknown, guarantees.decide(world.scores), 0)
        for value in (PRESENT, ABSENT):
            number = population.spread.beyond(value, guarantees.thresholds(value))
            assert np.array_equal(number, (decided == value).sum(axis=0))
        for value in (PRESENT, ABSENT):
            for pool in dict.fromkeys(one.pool for one in guarantees.of(value) if one.basis):
                cells = decided[:, list(pool)] == value
                made += 1
                broken += bool((world.truth[:, list(pool)][cells] == value).mean() < precision)
    assert made > 15
    # 5% may be wrong; more than this would happen by chance once in a thousand times
    assert broken <= binom.ppf(0.999, made, 0.05)


@pytest.mark.parametrize("rates", [(0.002, 0.002), (0.002, 0.045), (0.03, 0.03)])
def test_what_is_expected_is_what_is_found_on_average(rates: tuple[float, float]) -> None:
    """Errors are more frequent in the second half; the labels that choose know both rates."""
    rng, found, passed = np.random.default_rng(10), [], 0
    cells, draws = 4000, 200
    confidence = np.linspace(5, 1, cells)
    rate = np.repeat(rates, cells // 2)
    errors = np.diff(np.floor(np.cumsum(np.repeat(rate, 50))), prepend=0).astype(bool)
    known = make_sample(np.repeat(confidence, 50), errors, np.ones(50 * cells, dtype=bool))
    for _ in range(draws):
        reserved = rng.permutation(cells) < cells // 10
        sample = make_sample(confidence, rng.random(cells) < rate, reserved)
        limits = passing_limits(known, sample, 0.95, 0.0)
        right = 1 - rate[: limits[-1].cells].mean() if limits else 0.0
        found.append(right * limits[-1].cells if limits else 0.0)
        passed += bool(limits)
    prospect = prospect_of(known, sample, 0.95, 0.0)
    assert prospect.chance == pytest.approx(passed / draws, abs=0.1)
    # it takes thresholds that are tested one after the other for one test, and so expects more
    assert 0.85 * np.mean(found) <= prospect.finds <= 1.5 * np.mean(found)


@pytest.mark.parametrize("unit", UNITS)
def test_a_good_class_is_tested_alone_if_a_pool_would_fail(unit: Unit) -> None:
    """Another class has the same scores, but is wrong in a fifth of its cells."""
    first, population = make_classes(np.array([0.01, 0.2]), unit, images=6000)
    guarantees = find_guarantees(first, population, 0.9)
    assert guarantees.present[0].pool == (0,)
    assert guarantees.present[1].basis is None
    assert find_guarantees(first, population, 0.9, "pooled").present[0].basis is None


@pytest.mark.parametrize("chooses", [True, False])
@pytest.mark.parametrize("unit", UNITS)
def test_classes_with_few_labels_are_tested_together(unit: Unit, chooses: bool) -> None:
    """Each of them has fewer labels that test than a guarantee needs."""
    first, population = make_classes(np.full(20, 0.01), unit, images=400)
    guarantees = find_guarantees(first if chooses else None, population, 0.9)
    assert {one.pool for one in guarantees.present} == {tuple(range(20))}
    alone = find_guarantees(first, population, 0.9, "class")
    assert all(one.basis is None for one in alone.present)


@pytest.mark.parametrize("unit", UNITS)
def test_without_labels_that_choose_only_the_order_of_scores_counts(unit: Unit) -> None:
    """Calibration has seen the labels that test then, so how sure it is must not decide."""
    found = []
    for slope in (1.0, 3.0):
        _, population = make_classes(np.full(3, 0.005), unit, images=3000, slope=slope)
        guarantees = find_guarantees(None, population, 0.9).present
        found.append([(one.pool, one.limit.cells, one.limit.tested) for one in guarantees])
    assert found[0] == found[1]
    assert found[0][0][1] > 0


def make_classes(
    wrong: Any, unit: Unit, images: int, slope: float = 1.0
) -> tuple[KnownCells, Population]:
    """Labels that choose, and a population of which a quarter tests, with these rates of errors.

    A fifth of the cells looks present, with scores that are right in 99 of 100 cells.
    """
    rng, shape = np.random.default_rng(11), (images, len(wrong))
    sign = np.where(rng.random(shape) < 0.2, PRESENT, ABSENT)
    scores = slope * (sign * np.log(99) + rng.normal(0, 0.1, shape))
    truth, chosen = (np.where(rng.random(shape) < wrong, -sign, sign) for _ in range(2))
    tests = rng.random(shape if unit == "cell" else (images, 1)) < 0.25
    unknown = np.broadcast_to(~tests, shape)
    arrays = scores, np.where(tests, truth, 0), unknown, rng.random(shape)
    population = population_of(*arrays, np.zeros(images, dtype=np.int64), unit)
    return known_cells(scores, chosen.astype(np.int8)), population


def test_a_pool_weighs_classes_as_they_are_filled_in() -> None:
    """A class with few known labels and many unknown ones is not hidden by one with many."""
    rng = np.random.default_rng(1)
    images = 4000
    scores = np.full((images, 2), 3.0) + rng.random((images, 2))
    truth = np.ones((images, 2), dtype=np.int8)
    truth[: images // 5, 1] = ABSENT  # one fifth of the second class is wrong
    truth[-1, 0] = ABSENT
    known = rng.random((images, 2)) < np.array([0.5, 0.03])
    population = population_of(
        scores,
        np.where(known, truth, 0),
        ~known,
        rng.random((images, 2)),
        np.zeros(images, dtype=np.int64),
        "cell",
    )
    sample = draw_sample(population, [0, 1], PRESENT)
    column = (sample.confidence > 0).sum()
    assert column == len(sample.confidence)
    # equal ratios: two thirds of the unknown labels are of the second class, and of the tests too
    share = (~known)[:, 1].sum() / (~known).sum()
    expected = sample.reserved.sum() * share * 0.2
    assert sample.wrong.sum() == pytest.approx(expected, abs=4 * math.sqrt(expected))
    guarantees = find_guarantees(None, population, 0.95, "pooled")
    assert guarantees.present[0].pool in ((0,), ())  # they are not tested together
    decided = guarantees.decide(scores)
    assert not (decided[:, 1] == PRESENT).any()


@pytest.mark.parametrize("images", [300, 1500, 4000])
def test_a_class_that_is_not_looked_at_would_not_have_passed(
    images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, population = make_classes(np.linspace(0, 0.1, 6), "cell", images)
    found = find_guarantees(known, population, 0.9, "class")
    monkeypatch.setattr("partlabel.metrics.guarantee._may_pass", lambda *arguments: True)
    assert find_guarantees(known, population, 0.9, "class") == found


def test_labels_more_likely_wrong_than_right_are_never_filled_in() -> None:
    rng = np.random.default_rng(9)
    world = make_world(rng, 800, 3, "cell")
    first, population = world.first(shift=-20.0), world.population("cell", shift=-20.0)
    for basis in BASES:
        guarantees = find_guarantees(first, population, 0.3, basis)
        assert not (guarantees.decide(world.scores - 20) == PRESENT).any()


def test_no_guarantee_if_only_positives_are_known() -> None:
    rng = np.random.default_rng(5)
    scores = rng.normal(2, 1, (3000, 2))
    labels = np.ones((3000, 2), dtype=np.int8)
    labels[:, 1] = np.where(rng.random(3000) < 0.02, ABSENT, PRESENT)
    known = rng.random((3000, 2)) < 0.5
    population = population_of(
        scores,
        np.where(known, labels, 0),
        ~known,
        rng.random((3000, 2)),
        np.zeros(3000, dtype=np.int64),
        "cell",
    )
    guarantees = find_guarantees(None, population, 0.8)
    assert guarantees.present[0].basis is None
    assert guarantees.present[1].basis is not None
    assert not guarantees.decide(scores)[:, 0].any()


def test_no_guarantee_without_labels() -> None:
    empty = np.empty((0, 3))
    population = population_of(
        empty, empty.astype(np.int8), empty.astype(bool), empty, np.empty(0, dtype=np.int64), "cell"
    )
    guarantees = find_guarantees(known_cells(empty, empty.astype(np.int8)), population, 0.95)
    assert not guarantees.any
    assert not guarantees.decide(np.full((2, 3), 100.0)).any()
    assert not nothing_guaranteed(3).any


def test_cells_that_stand_for_many_are_ranked_as_many() -> None:
    """A sample in which cells of equal confidence are one entry has the same thresholds."""
    rng = np.random.default_rng(4)
    confidence = np.round(rng.random(3000) * 4, 1) + 0.1
    reserved = rng.random(3000) < 0.2
    one_by_one = make_sample(confidence, rng.random(3000) < 0.02, reserved)
    entries = [np.flatnonzero(one_by_one.reserved)]
    cells = [np.ones(len(entries[0]), dtype=np.int64)]
    for value in np.unique(confidence):
        alike = np.flatnonzero((one_by_one.confidence == value) & ~one_by_one.reserved)
        entries.append(alike[:1])
        cells.append(np.array([len(alike)] if len(alike) else [], dtype=np.int64))
    chosen, number = np.concatenate(entries), np.concatenate(cells)
    order = np.argsort(-one_by_one.confidence[chosen], kind="stable")
    chosen = chosen[order]
    binned = one_by_one._replace(
        confidence=one_by_one.confidence[chosen],
        reserved=one_by_one.reserved[chosen],
        wrong=one_by_one.wrong[chosen],
        image=one_by_one.image[chosen],
        cells=number[order],
    )
    expected = passing_limits(None, one_by_one, 0.9, 0.0)
    assert len(expected) > 3
    assert passing_limits(None, binned, 0.9, 0.0) == expected
