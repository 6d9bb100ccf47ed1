"""Which labels test which: what `complete` counts is a random sample of what it fills in."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from partlabel.judging.completion.assessment import Scope
from partlabel.judging.completion.evidence_files import recall_at_least
from partlabel.judging.completion.held_labels import HeldLabels, judges_of
from partlabel.judging.completion.layout import (
    PARTS,
    TAGGED,
    Layout,
    Part,
    lay_out,
    populations,
    reserved_labels,
)
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.labels.groups import Groups
from partlabel.metrics.guarantee import Guarantee, nothing_guaranteed
from partlabel.metrics.guarantee_thresholds import Limit
from partlabel.metrics.sampling import draw_sample
from partlabel.metrics.spread import spread_of
from partlabel.training.reserving import tagged_images
from partlabel.training.run_split import Selection, select
from partlabel.training.settings import Settings
from populations import population_of

CLASSES = 5


def make_truth(rng: Any, images: int, classes: int = CLASSES) -> Any:
    return np.where(rng.random((images, classes)) < 0.3, PRESENT, ABSENT).astype(np.int8)


def make_table(labels: Any) -> LabelTable:
    names = [f"i{i}" for i in range(len(labels))], [f"c{j}" for j in range(labels.shape[1])]
    return LabelTable(*names, labels)


def make_held(selection: Selection, tagged: Any) -> HeldLabels:
    """The labels that a selection reserves."""
    everything = np.arange(len(selection.known))
    choosing = judges_of(selection.table, selection.val)
    tested = judges_of(selection.tested, everything)
    return HeldLabels("exact", choosing, None, tested, tagged, np.ones(len(everything), bool))


def make_populations(selection: Selection, held: HeldLabels, rng: Any) -> tuple[Layout, Any]:
    """The populations of a selection, with scores that know nothing."""
    known = selection.known
    layout, logits = lay_out(selection, held, 0), rng.normal(size=known.shape)
    parts = np.where(known.dense() == 0, layout.of(np.arange(len(known))), -1)
    spreads = {part: spread_of(logits, parts == part) for part in Part}
    scores = logits[held.tested.rows, held.tested.columns]
    tested = held.tested.with_scores(scores, len(known.classes))
    tests = reserved_labels(layout, tested, (scores, scores), 0, known)
    return layout, populations(layout, tests, spreads)


def test_tagged_images_test_each_other_if_labels_are_missing_at_random() -> None:
    """The last class has presences only, so that images with one of these are tagged."""
    rng = np.random.default_rng(0)
    truth = make_truth(rng, 1500)
    labels = np.where(rng.random(truth.shape) < 0.4, truth, 0)
    labels[labels[:, -1] == ABSENT, -1] = 0
    tagged = labels[:, -1] == PRESENT
    selection = select(make_table(labels), Settings(method="bce"))
    layout, (by_label, by_image) = make_populations(selection, make_held(selection, tagged), rng)
    unknown = (labels == 0)[:, :-1]
    assert by_label.unit == "cell"
    own = layout.groups[tagged].min()
    assert (layout.groups[tagged] == own).all()
    assert not (layout.groups[~tagged] == own).any()
    assert np.array_equal(by_label.unknown[own, :-1], unknown[tagged].sum(axis=0))
    assert np.array_equal(by_label.unknown[:, :-1].sum(axis=0), unknown.sum(axis=0))
    assert not by_label.unknown[:, -1].any()
    sample = by_label.tests.take(by_label.tests.groups == own)
    assert tagged[sample.rows].all()
    shares = [part[own, :-1].sum() / part[:, :-1].sum() for part in by_label.counts]
    assert shares[0] == pytest.approx(shares[1], rel=0.05)
    # nothing tests the last class, whose presences are all known where an image is tagged
    assert by_image.unit == "image"
    assert not tagged[by_image.tests.rows].any()
    assert not layout.open_images(TAGGED).any()


def test_tagged_images_do_not_test_others_and_others_not_them() -> None:
    """Whole images are labelled, and others have one tag."""
    rng = np.random.default_rng(3)
    truth = make_truth(rng, 1500)
    kind = rng.integers(3, size=1500)
    first = (truth == PRESENT) & (np.cumsum(truth == PRESENT, axis=1) == 1)
    labels = np.where((kind == 0)[:, None] | ((kind == 1)[:, None] & first), truth, 0)
    tagged = (kind == 1) & first.any(axis=1)
    plain = make_table(labels)
    codes = (kind[plain.cells.rows] + 1).astype(np.uint8)
    cells = plain.cells.with_details(origins=codes)
    names = plain.ids, plain.classes
    table = LabelTable.from_cells(*names, cells, None, ["team", "web", "-"])
    selection = select(table, Settings(method="bce"))
    layout, (population,) = make_populations(selection, make_held(selection, tagged), rng)
    assert population.unit == "image"
    assert len(population.tests.rows)
    assert not tagged[population.tests.rows].any()
    assert not layout.open_images(PARTS["image"])[tagged].any()
    assert np.array_equal(layout.open_images(TAGGED), tagged & (labels == 0).any(axis=1))


def test_the_cells_of_each_part_are_counted() -> None:
    """By label, by image, in splits that are not used, and in images that cannot be read."""
    rng = np.random.default_rng(2)
    truth = make_truth(rng, 900)
    labels = np.where(rng.random(truth.shape) < 0.4, truth, 0)
    splits = ["train"] * 800 + ["test"] * 100
    table = LabelTable([f"i{i}" for i in range(900)], list("abcde"), labels, splits)
    selection = select(table, Settings(method="bce"))
    held = make_held(selection, rng.random(900) < 0.1)
    held = replace(held, readable=rng.random(900) < 0.9)
    layout, origin = lay_out(selection, held, 0), rng.integers(3, size=900)
    for step in range(2):
        readable = np.flatnonzero(held.readable)
        parts = np.full(labels.shape, -1)
        parts[readable] = layout.of(readable)
        parts[labels != 0] = -1
        counts = layout.counts(origin, 3)
        for part in Part:
            for group in range(3):
                inside = parts[origin == group] == part
                assert np.array_equal(counts[group, part], inside.sum(axis=0))
            for classes in (None, np.array([1, 3])):
                some = (parts == part)[:, slice(None) if classes is None else classes]
                assert np.array_equal(layout.open_images([part], classes), some.any(axis=1))
        assert (counts[:, Part.LEFT_OUT].sum() > 0) == (step == 1)
        assert counts[:, Part.BY_IMAGE_OUTSIDE].any()
        layout = layout.leave_out(origin == 2, np.array([0, 4]))


def test_recall_counts_groups_as_they_are_filled_in() -> None:
    """A small group is fully found and has half of the reserved labels, but few unknown ones."""
    scores = np.repeat([3.0, -3.0], [1000, 10000])[:, None]
    group = np.repeat([0, 1], [1000, 10000])
    tests = np.r_[np.arange(1000) < 500, np.arange(10000) < 500][:, None]
    labels = np.where(tests, PRESENT, 0).astype(np.int8)
    draws = np.random.default_rng(0).random(scores.shape)
    population = population_of(scores, labels, ~tests, draws, group, "cell")
    scope = Scope(population, nothing_guaranteed(1))
    recall = recall_at_least(scope, 0, PRESENT, Guarantee(Limit(threshold=1.0), "class", (0,)))
    assert recall < 500 / 10000


def test_images_that_belong_together_test_by_image_and_count_as_one() -> None:
    rng = np.random.default_rng(1)
    truth = make_truth(rng, 1500)
    labels = np.where(rng.random(truth.shape) < 0.4, truth, 0)
    groups = Groups.of_codes(np.where(np.arange(1500) < 400, np.arange(1500) // 2, -1))
    selection = select(make_table(labels), Settings(method="bce"), groups)
    held = make_held(selection, np.zeros(1500, dtype=np.bool_))
    layout, (by_label, by_image) = make_populations(selection, held, rng)
    copies = groups.sizes > 1
    assert (by_label.unit, by_image.unit) == ("cell", "image")
    alone, shared = (layout.open_images(PARTS[part.unit]) for part in (by_label, by_image))
    assert not alone[copies].any()
    assert not copies[by_label.tests.rows].any()
    assert shared[copies].any()
    assert not shared[~copies].any()
    sample = draw_sample(by_image, [0], PRESENT)
    images = sample.image[sample.reserved]
    assert np.isin(images, groups.first).all()
    assert np.bincount(images).max() == 2


def test_the_same_number_of_labels_in_each_image_tests_by_image() -> None:
    """One label tells of the others then: where all three are trained on, none is reserved."""
    rng = np.random.default_rng(2)
    truth = make_truth(rng, 1500)
    rank = np.argsort(np.argsort(rng.random(truth.shape), axis=1), axis=1)
    selection = select(make_table(np.where(rank < 3, truth, 0)), Settings(method="bce"))
    seen, tested = selection.table.dense() != 0, selection.tested.dense() != 0
    assert tested.any()
    assert not tested[seen.sum(axis=1) == 3].any()
    held = make_held(selection, np.zeros(1500, dtype=np.bool_))
    _, (population,) = make_populations(selection, held, rng)
    assert population.unit == "image"
    assert np.array_equal(population.unknown.sum(axis=0), (rank >= 3).sum(axis=0))


@pytest.mark.parametrize("first", ["team", "tags"])
def test_a_tag_is_no_sample_of_what_a_team_left_out(first: str) -> None:
    """Among labels that no training has seen, reserved ones are present as often as others.

    A present label that has a tag too is never among the unknown ones, whichever file comes first.
    """
    gaps = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truth = make_truth(rng, 1500)
        parts = {
            "team": make_table(np.where(rng.random(truth.shape) < 0.3, truth, 0)),
            "tags": make_table(np.where((rng.random(truth.shape) < 0.6) & (truth > 0), 1, 0)),
        }
        order = sorted(parts, key=lambda name: name != first)
        one, other = (parts[name].with_origin(name) for name in order)
        table = one.merge(other)
        selection = select(table, Settings(method="bce", seed=seed))
        tagged = tagged_images(selection.known)
        layout, (by_label, *_) = make_populations(selection, make_held(selection, tagged), rng)
        hidden, tests = selection.known.dense() == 0, by_label.tests
        assert len(tests.labels) > 100
        for group in np.unique(tests.groups):
            unknown = truth[(layout.groups == group)[:, None] & hidden]
            ours = tests.labels[tests.groups == group]
            gaps.append((len(ours) * ((ours > 0).mean() - (unknown > 0).mean()), len(ours)))
    excess, number = np.sum(gaps, axis=0)
    assert abs(excess) < 4 * np.sqrt(number * 0.25)
