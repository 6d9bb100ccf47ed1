"""Simulated labels: which labels each strategy keeps, and how many."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partlabel import LabelTable
from partlabel.base.errors import InputError
from partlabel.labels import simulate
from tables import tables

full_tables = tables(values=(-1, 1))
seeds = st.integers(0, 10**9)


def big(n: int = 4000, classes: int = 10, splits: list[str] | None = None) -> LabelTable:
    rng = np.random.default_rng(0)
    matrix = np.where(rng.random((n, classes)) < 0.3, 1, -1)
    return LabelTable(
        [f"{i}.jpg" for i in range(n)], [f"c{j}" for j in range(classes)], matrix, splits
    )


@pytest.mark.parametrize("proportion", [0.0, 0.1, 0.37, 0.9, 1.0])
def test_partial_keeps_the_proportion(proportion: float) -> None:
    table = big()
    kept = simulate.partial(table, proportion, seed=3)
    tolerance = 3 * np.sqrt(proportion * (1 - proportion) / table.dense().size)
    assert abs(kept.known - proportion) <= tolerance
    dense, truth = kept.dense(), table.dense()
    assert ((dense == truth) | (dense == 0)).all()
    by_class = (dense != 0).mean(axis=0)  # no class is preferred
    assert np.abs(by_class - proportion).max() <= 4.5 * np.sqrt(0.25 / len(table))


@pytest.mark.parametrize("proportion", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_per_image_keeps_the_same_number_in_each(proportion: float) -> None:
    known = (simulate.partial(big(), proportion, seed=1, per_image=True).dense() != 0).sum(axis=1)
    assert len(set(known.tolist())) == 1
    assert abs(known[0] - 10 * proportion) < 1


def test_rounding_is_exact_in_the_mean_over_seeds() -> None:
    table = big(n=10)
    per_image = [simulate.partial(table, 0.25, seed, per_image=True).known for seed in range(400)]
    assert abs(np.mean(per_image) - 0.25) < 3 * 0.05 / np.sqrt(400)
    dense = [simulate.dense(table, 0.25, seed).known for seed in range(400)]
    assert abs(np.mean(dense) - 0.25) < 3 * 0.05 / np.sqrt(400)


def test_a_larger_proportion_keeps_all_labels_of_a_smaller_one() -> None:
    table = big()
    few, many = (simulate.partial(table, share, seed=5).dense() for share in (0.1, 0.4))
    assert ((few == 0) | (few == many)).all()
    few, many = (simulate.dense(table, share, seed=5).dense() for share in (0.1, 0.4))
    assert ((few == 0) | (few == many)).all()


def test_dense_keeps_whole_images() -> None:
    known = (simulate.dense(big(), 0.3, seed=0).dense() != 0).sum(axis=1)
    assert set(known.tolist()) == {0, 10}
    assert (known == 10).sum() == 1200


def test_noisy_inverts_the_other_labels() -> None:
    table = big()
    noisy = simulate.noisy(table, 0.8, seed=0)
    assert noisy.known == 1.0
    correct = (noisy.dense() == table.dense()).mean()
    assert abs(correct - 0.8) < 3 * np.sqrt(0.16 / table.dense().size)


@given(full_tables, seeds)
def test_single_positive(table: LabelTable, seed: int) -> None:
    kept, truth = simulate.single_positive(table, seed).dense(), table.dense()
    assert ((kept == 0) | (kept == 1) & (truth == 1)).all()
    assert ((kept == 1).sum(axis=1) == np.minimum((truth == 1).sum(axis=1), 1)).all()


@given(full_tables, seeds)
def test_three_strategies_keep_the_same_positive(table: LabelTable, seed: int) -> None:
    truth = table.dense()
    single = simulate.single_positive(table, seed).dense() == 1
    expected = np.where(single, 1, np.where(truth == -1, -1, 0))
    assert np.array_equal(simulate.positive_and_negatives(table, seed).dense(), expected)
    expected = np.where(single, 1, -1)
    assert np.array_equal(simulate.noisy_positive(table, seed).dense(), expected)


def test_all_positives_are_equally_likely() -> None:
    n = 6000
    table = LabelTable([str(i) for i in range(n)], list("abc"), np.ones((n, 3)))
    share = (simulate.single_positive(table, seed=0).dense() == 1).mean(axis=0)
    assert np.abs(share - 1 / 3).max() < 4 * np.sqrt(2 / 9 / n)


@given(tables(), seeds, st.floats(0, 1))
@settings(max_examples=50)
def test_results_do_not_depend_on_order_or_on_other_images(
    table: LabelTable, seed: int, proportion: float
) -> None:
    order = np.random.default_rng(seed).permutation(len(table))[: max(len(table) - 1, 0)]
    part = table.subset(order)
    hiders: list[Callable[[LabelTable], LabelTable]] = [
        lambda t: simulate.partial(t, proportion, seed),
        lambda t: simulate.partial(t, proportion, seed, per_image=True),
        lambda t: simulate.noisy(t, proportion, seed),
        lambda t: simulate.single_positive(t, seed),
        lambda t: simulate.mixed(t, seed),
    ]
    for hide in hiders:
        assert hide(table).subset(order) == hide(part)


def test_a_seed_repeats_and_another_seed_differs() -> None:
    table = big()
    assert simulate.partial(table, 0.5, 1) == simulate.partial(table, 0.5, 1)
    assert simulate.partial(table, 0.5, 1) != simulate.partial(table, 0.5, 2)


@pytest.mark.parametrize("parts", [2, 3])
def test_merged_labels_each_part_for_its_own_classes(parts: int) -> None:
    table = big()
    merged = simulate.merged(table, seed=0, parts=parts)
    known, truth = merged.dense() != 0, table.dense()
    assert np.array_equal(merged.dense(), np.where(known, truth, 0))
    patterns, images = np.unique(known, axis=0, return_counts=True)
    assert len(patterns) == parts
    assert (patterns.sum(axis=0) == 1).all()  # each class belongs to one part
    assert np.ptp(patterns.sum(axis=1)) <= 1
    share = 1 / parts
    assert np.abs(images / len(table) - share).max() < 4 * np.sqrt(share / len(table))
    names = [f"part {number + 1}" for number in range(parts)]
    assert merged.origins == names
    for row, codes in zip(known[:50], (merged.subset([i]) for i in range(50)), strict=True):
        assert len(set(codes.cells.origins_or_none().tolist())) == 1
        assert row.sum() == len(codes.cells.values)


def test_mixed_has_full_images_tags_and_nothing() -> None:
    table = big()
    mixed = simulate.mixed(table, seed=0, full=0.2, tags=0.5)
    known = (mixed.dense() != 0).sum(axis=1)
    has_positive = (table.dense() == 1).any(axis=1)
    assert abs((known == 10).mean() - 0.2) < 0.03
    assert abs((known == 1).mean() - 0.5 * has_positive.mean()) < 0.03
    assert set(known.tolist()) == {0, 1, 10}
    tags = mixed.cells.where(mixed.cells.origins_or_none() == 2)
    assert mixed.origins == ["full", "tags"]
    assert (tags.values == 1).all()
    assert np.diff(tags.starts).max() == 1
    assert (known[np.diff(tags.starts) == 0] != 1).all()


def test_hide_in_one_split_with_holdout() -> None:
    splits = ["train"] * 3000 + ["val"] * 1000
    table = big(splits=splits)
    hidden = simulate.hide(table, "single-positive", seed=1, split="train", holdout=0.2)
    assert hidden.ids == table.ids
    assert [
        int((np.array(list(hidden.splits or [])) == s).sum()) for s in ("train", "holdout", "val")
    ] == [2400, 600, 1000]
    truth = table.dense()
    for kept_split in ("holdout", "val"):
        rows = hidden.in_split(kept_split)
        assert np.array_equal(hidden.dense()[rows], truth[rows])
    assert (hidden.split("train").dense() != 0).sum(axis=1).max() == 1
    other_seed = simulate.hide(table, "single-positive", seed=2, split="train", holdout=0.2)
    assert not np.array_equal(other_seed.in_split("holdout"), hidden.in_split("holdout"))


def test_hide_adds_splits_to_a_table_without_them() -> None:
    hidden = simulate.hide(big(n=100), "partial", 0.1, holdout=0.25)
    assert (hidden.in_split("holdout").sum(), hidden.in_split("train").sum()) == (25, 75)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "partal"}, "did you mean 'partial'"),
        ({"strategy": "partial"}, "needs a proportion"),
        ({"strategy": "single-positive", "proportion": 0.1}, "takes no proportion"),
        ({"strategy": "partial", "proportion": 1.1}, "between 0 and 1"),
        ({"strategy": "dense", "proportion": float("nan")}, "between 0 and 1"),
        ({"strategy": "partial", "proportion": -1, "per_image": True}, "between 0 and 1"),
        ({"strategy": "dense", "proportion": 0.1, "per_image": True}, "--per-image is for"),
        ({"strategy": "partial", "proportion": 0.1, "holdout": 2}, "holdout is 2"),
        ({"strategy": "partial", "proportion": 0.1, "split": "train"}, "no splits"),
        ({"strategy": "mixed", "parts": 2}, "--parts is for the strategy 'merged'"),
        ({"strategy": "merged", "parts": 1}, "whole number from 2"),
        ({"strategy": "merged", "parts": 11}, "11 parts need as many classes"),
        ({"strategy": "mixed", "full": 0.7, "tags": 0.4}, "together at most 1"),
        ({"strategy": "merged", "prts": 2}, "did you mean 'parts'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate.hide(big(n=10), **arguments)  # type: ignore[arg-type]


def test_a_second_holdout_is_an_error() -> None:
    table = big(n=10, splits=["holdout"] * 5 + ["train"] * 5)
    with pytest.raises(InputError, match="already has a split 'holdout'"):
        simulate.hide(table, "partial", 0.5, split="train", holdout=0.2)
