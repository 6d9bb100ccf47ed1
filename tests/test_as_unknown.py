"""Fully labelled images that test, with as many labels set aside as training images have."""

from typing import Any

import numpy as np
import pytest

from partlabel.judging.completion.held_labels import as_unknown
from partlabel.labels import ABSENT, PRESENT, LabelTable, simulate


def full_labels() -> tuple[LabelTable, LabelTable]:
    """All labels of held-out and of training images, each with at least one positive."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random((6000, 6)) < rng.choice([0.05, 0.5], (6000, 1)), PRESENT, ABSENT)
    values[np.arange(6000), rng.integers(6, size=6000)] = PRESENT
    full = LabelTable([f"i{i}" for i in range(6000)], [f"c{j}" for j in range(6)], values)
    return full.subset(np.arange(3000)), full.subset(np.arange(3000, 6000))


def test_one_positive_fewer_is_left_for_single_positives() -> None:
    held, others = full_labels()
    left = as_unknown(held, simulate.single_positive(others, 0), 0).dense()
    present = (held.dense() == PRESENT).sum(axis=1)
    assert np.array_equal((left == PRESENT).sum(axis=1), present - 1)
    assert np.array_equal(left == ABSENT, held.dense() == ABSENT)


def tags(full: LabelTable, share: float) -> LabelTable:
    """A share of the present labels; no absent label is known."""
    draw = np.random.default_rng(1).random(len(full.cells.values))
    return full.with_cells(full.cells.where((full.cells.values == PRESENT) & (draw < share)))


@pytest.mark.parametrize(
    "hide",
    [
        lambda full: simulate.single_positive(full, 0),
        lambda full: simulate.positive_and_negatives(full, 0),
        lambda full: simulate.partial(full, 0.1, 0),
        lambda full: simulate.partial(full, 0.8, 0),
        lambda full: tags(full, 0.5),
        lambda full: tags(full, 0.9),
    ],
    ids=["single", "positive+negatives", "10%", "80%", "half of the tags", "most tags"],
)
def test_full_labels_are_reduced_to_a_sample_of_unknown_labels(hide: Any) -> None:
    """The share of present labels is that among the unknown labels of the training images."""
    held, others = full_labels()
    known = hide(others)
    unknown = others.dense()[known.dense() == 0]
    left = as_unknown(held, known, 0).dense()
    share = (left[left != 0] == PRESENT).mean()
    assert share == pytest.approx((unknown == PRESENT).mean(), abs=0.05)
    assert (left != 0).mean() == pytest.approx((known.dense() == 0).mean(), abs=0.02)


def test_images_labelled_like_training_images_are_not_changed() -> None:
    held, others = full_labels()
    for share in (0.1, 0.5):
        labels = simulate.partial(held, share, 1)
        left = as_unknown(labels, simulate.partial(others, share, 0), 0).dense()
        assert np.array_equal(left, labels.dense())


def test_what_an_image_that_tests_leaves_out_does_not_depend_on_other_images_that_test() -> None:
    held, others = full_labels()
    training = simulate.partial(others, 0.3, 0)
    choosing, tests = held.subset(np.arange(1500)), held.subset(np.arange(1500, 3000))
    left = as_unknown(tests, training, 0, choosing).dense()
    assert (left != 0).mean() == pytest.approx(0.7, abs=0.02)
    some = np.arange(0, 1500, 3)
    alone = as_unknown(tests.subset(some), training, 0, choosing).dense()
    assert np.array_equal(alone, left[some])
    values = tests.dense()
    values[1:] = PRESENT  # all other images show everything
    changed = as_unknown(
        LabelTable(tests.ids, tests.classes, values), training, 0, choosing
    ).dense()
    assert np.array_equal(changed[0], left[0])
    same = simulate.partial(choosing, 0.3, 1)  # labelled like training images
    assert np.array_equal(as_unknown(tests, training, 0, same).dense(), tests.dense())
