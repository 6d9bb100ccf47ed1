"""Which labels test which: what `complete` counts is a random sample of what it fills in."""

from typing import Any

import numpy as np

from partlabel.judging.completion.assessment import Scope
from partlabel.judging.completion.evidence_files import recall_at_least
from partlabel.judging.completion.held_labels import Choosing, Evidence, populations
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.labels.groups import Groups
from partlabel.metrics.calibration import calibrate
from partlabel.metrics.guarantee import Guarantee, nothing_guaranteed
from partlabel.metrics.guarantee_thresholds import Limit
from partlabel.metrics.sampling import Population, draw_sample
from partlabel.training.run_split import Selection, select
from partlabel.training.settings import Settings

CLASSES = 5


def make_truth(rng: Any, images: int, classes: int = CLASSES) -> Any:
    return np.where(rng.random((images, classes)) < 0.3, PRESENT, ABSENT).astype(np.int8)


def make_table(labels: Any) -> LabelTable:
    names = [f"i{i}" for i in range(len(labels))], [f"c{j}" for j in range(labels.shape[1])]
    return LabelTable(*names, labels)


def make_evidence(selection: Selection, tagged: Any, rng: Any) -> Evidence:
    """The labels that a selection reserves, with scores that know nothing."""
    known = selection.known.dense()
    scores = rng.random(known.shape)
    choosing = Choosing(scores[selection.val], selection.table.dense()[selection.val])
    calibration = calibrate(*choosing)
    tested, logits = selection.tested.dense(), calibration.logits(scores)
    return Evidence("exact", choosing, calibration, logits, tested, known == 0, tagged)


def test_images_that_are_not_filled_in_do_not_test() -> None:
    """The last class has presences only, so that images with one of these are tagged."""
    rng = np.random.default_rng(0)
    truth = make_truth(rng, 1500)
    labels = np.where(rng.random(truth.shape) < 0.4, truth, 0)
    labels[labels[:, -1] == ABSENT, -1] = 0
    tagged = labels[:, -1] == PRESENT
    selection = select(make_table(labels), Settings(method="bce"))
    assert (selection.tested.dense()[tagged] != 0).any()
    for population in populations(selection, make_evidence(selection, tagged, rng), 0):
        assert (population.labels != 0).any()
        assert not population.labels[tagged].any()
        assert not population.unknown[tagged].any()


def test_recall_counts_groups_as_they_are_filled_in() -> None:
    """A small group is fully found and has half of the reserved labels, but few unknown ones."""
    scores = np.repeat([3.0, -3.0], [1000, 10000])[:, None]
    group = np.repeat([0, 1], [1000, 10000])
    tests = np.r_[np.arange(1000) < 500, np.arange(10000) < 500][:, None]
    labels = np.where(tests, PRESENT, 0).astype(np.int8)
    draws = np.random.default_rng(0).random(scores.shape)
    population = Population(scores, labels, ~tests, draws, group, "cell")
    scope = Scope(population, nothing_guaranteed(1))
    recall = recall_at_least(scope, 0, PRESENT, Guarantee(Limit(threshold=1.0), "class", (0,)))
    assert recall < 500 / 10000


def test_images_that_belong_together_test_by_image_and_count_as_one() -> None:
    rng = np.random.default_rng(1)
    truth = make_truth(rng, 1500)
    labels = np.where(rng.random(truth.shape) < 0.4, truth, 0)
    groups = Groups.of_codes(np.where(np.arange(1500) < 400, np.arange(1500) // 2, -1))
    selection = select(make_table(labels), Settings(method="bce"), groups)
    nothing = np.zeros(1500, dtype=np.bool_)
    by_label, by_image = populations(selection, make_evidence(selection, nothing, rng), 0)
    copies = groups.sizes > 1
    assert by_label.unit == "cell"
    assert not by_label.unknown[copies].any()
    assert not by_label.labels[copies].any()
    assert by_image.unknown[copies].any()
    assert not by_image.unknown[~copies].any()
    sample = draw_sample(by_image, [0], PRESENT)
    assert np.isin(sample.image, groups.first).all()
    assert np.bincount(sample.image).max() == 2


def test_the_same_number_of_labels_in_each_image_tests_by_image() -> None:
    """One label tells of the others then: where all three are trained on, none is reserved."""
    rng = np.random.default_rng(2)
    truth = make_truth(rng, 1500)
    rank = np.argsort(np.argsort(rng.random(truth.shape), axis=1), axis=1)
    selection = select(make_table(np.where(rank < 3, truth, 0)), Settings(method="bce"))
    seen, tested = selection.table.dense() != 0, selection.tested.dense() != 0
    assert tested.any()
    assert not tested[seen.sum(axis=1) == 3].any()
    (population,) = populations(
        selection, make_evidence(selection, np.zeros(1500, dtype=np.bool_), rng), 0
    )
    assert population.unit == "image"
    assert np.array_equal(population.unknown, rank >= 3)
