"""Hiding labels of a fully labelled table, as the papers do to simulate missing labels.

Every random number belongs to an image and a class by name (see ``randomness``). So the result does
not depend on the order or the number of the images. With the same seed, the labels known at 10% are
a subset of those known at 20%. Labels that are unknown in the table stay unknown.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError, one_of
from partlabel.base.randomness import key, keys, uniform
from partlabel.labels import ABSENT, PRESENT, Cells, LabelTable

HOLDOUT = "holdout"


def partial(table: LabelTable, proportion: float, seed: int, per_image: bool = False) -> LabelTable:
    """Keep each known label with probability ``proportion``.

    Args:
        per_image: keep the same number of labels in each image instead: ``proportion`` of its
            known labels, rounded. All images are rounded by the same random number, so that the
            mean over seeds is exact.

    >>> table = LabelTable(["a", "b"], list("wxyz"), np.ones((2, 4)))
    >>> np.abs(partial(table, 0.5, seed=0, per_image=True).dense()).sum(axis=1).tolist()
    [2, 2]
    """
    cells = _known_cells(table)
    draws = _draw_per_cell(table, cells, key(seed, "partial"))
    if not per_image:
        return table.with_cells(cells.where(draws < _check_share(proportion)))
    known = np.diff(cells.starts)
    kept = _round_at_random(_check_share(proportion) * known, key(seed, "partial", "rounding"))
    return table.with_cells(cells.where(_rank_in_image(cells, draws) < np.repeat(kept, known)))


def dense(table: LabelTable, proportion: float, seed: int) -> LabelTable:
    """Keep all labels of some images, and no labels of the others.

    The number of images with labels is ``proportion`` of all images, rounded at random so that the
    mean over seeds is exact.
    """
    cells = _known_cells(table)
    draws = uniform(key(seed, "dense"), keys(table.ids))
    exact = np.array([_check_share(proportion) * len(table)])
    number = int(_round_at_random(exact, key(seed, "dense", "rounding"))[0])
    chosen = _smallest(draws, number)
    return table.with_cells(cells.where(np.repeat(chosen, np.diff(cells.starts))))


def noisy(table: LabelTable, proportion: float, seed: int) -> LabelTable:
    """Keep each label correct with probability ``proportion``, and invert the others."""
    cells = _known_cells(table)
    correct = _draw_per_cell(table, cells, key(seed, "noisy")) < _check_share(proportion)
    return table.with_cells(cells.with_values(np.where(correct, cells.values, -cells.values)))


def noisy_positive(table: LabelTable, seed: int) -> LabelTable:
    """Keep one present label per image, and turn its other present labels into absent ones."""
    cells = _known_cells(table)
    inverted = (cells.values == PRESENT) & ~_one_positive(table, cells, seed)
    values = np.where(inverted, ABSENT, cells.values).astype(np.int8)
    return table.with_cells(cells.with_values(values))


def single_positive(table: LabelTable, seed: int) -> LabelTable:
    """Keep one present label per image and nothing else.

    An image without present labels stays in the table, with no known label.
    """
    cells = _known_cells(table)
    return table.with_cells(cells.where(_one_positive(table, cells, seed)))


def positive_and_negatives(table: LabelTable, seed: int) -> LabelTable:
    """Keep one present label and all absent labels per image."""
    cells = _known_cells(table)
    kept = (cells.values == ABSENT) | _one_positive(table, cells, seed)
    return table.with_cells(cells.where(kept))


WITH_PROPORTION: dict[str, Callable[[LabelTable, float, int], LabelTable]] = {
    "partial": partial,
    "dense": dense,
    "noisy": noisy,
}
WITHOUT_PROPORTION: dict[str, Callable[[LabelTable, int], LabelTable]] = {
    "noisy+": noisy_positive,
    "single-positive": single_positive,
    "positive+negatives": positive_and_negatives,
}
STRATEGIES = (*WITH_PROPORTION, *WITHOUT_PROPORTION)


def hide(
    table: LabelTable,
    strategy: str,
    proportion: float | None = None,
    seed: int = 0,
    split: str | None = None,
    holdout: float = 0.0,
    *,
    per_image: bool = False,
) -> LabelTable:
    """Hide labels by one of ``STRATEGIES``, in all images or in those of one split.

    Args:
        proportion: the share of labels that stay known and correct; needed by partial, dense and
            noisy.
        split: hide labels only in this split; other images keep their labels.
        holdout: this share of the images (of the split, if one is given) keeps its labels and
            moves to the split ``"holdout"``, the papers' validation set.
        per_image: for partial, keep the same number of labels in each image.
    """
    check(strategy, proportion, holdout, per_image=per_image)
    chosen = np.ones(len(table), np.bool_) if split is None else table.in_split(split)
    if holdout:
        held_out = _draw_holdout(table, np.flatnonzero(chosen), holdout, seed)
        chosen[held_out] = False
        table = _move_to_holdout(table, held_out)
    part = table.subset(chosen)
    if proportion is None:
        hidden = WITHOUT_PROPORTION[strategy](part, seed)
    elif per_image:
        hidden = partial(part, proportion, seed, per_image=True)
    else:
        hidden = WITH_PROPORTION[strategy](part, proportion, seed)
    # the merge puts the chosen rows after the others; argsort restores the original order
    order = np.concatenate([np.flatnonzero(~chosen), np.flatnonzero(chosen)])
    return table.subset(~chosen).merge(hidden).subset(np.argsort(order))


def check(
    strategy: str, proportion: float | None, holdout: float = 0.0, *, per_image: bool = False
) -> None:
    """Raise an error for arguments that :func:`hide` cannot handle, before a file is read."""
    one_of("strategy", strategy, STRATEGIES)
    if (proportion is None) == (strategy in WITH_PROPORTION):
        need = "needs a proportion" if proportion is None else "takes no proportion"
        raise InputError(f"the strategy '{strategy}' {need} (--proportion)")
    if per_image and strategy != "partial":
        raise InputError(f"--per-image is for the strategy 'partial', not for '{strategy}'")
    if proportion is not None:
        _check_share(proportion)
    if not 0 <= holdout < 1:
        raise InputError(f"holdout is {holdout}; it must be at least 0 and less than 1")


def _check_share(proportion: float) -> float:
    if not 0 <= proportion <= 1:
        raise InputError(f"proportion is {proportion}; it must be between 0 and 1")
    return proportion


def _draw_holdout(
    table: LabelTable, rows: NDArray[np.int64], share: float, seed: int
) -> NDArray[np.int64]:
    """A random share of these rows."""
    draws = uniform(key(seed, "holdout"), keys(table.ids.take(rows)))
    return np.asarray(rows[_smallest(draws, round(share * len(rows)))])


def _move_to_holdout(table: LabelTable, rows: NDArray[np.int64]) -> LabelTable:
    """The table with these rows in the split ``holdout``; without splits, others get ``train``."""
    if table.splits is not None and HOLDOUT in table.splits:
        raise InputError(f"the table already has a split '{HOLDOUT}'; leave out --holdout")
    splits = np.array(list(table.splits or ["train"] * len(table)), dtype=object)
    splits[rows] = HOLDOUT
    return table.with_splits(list(splits))


def _known_cells(table: LabelTable) -> Cells:
    """The known cells without scores, because scores would reveal hidden labels."""
    cells = table.cells
    return cells.with_values(cells.values)


def _draw_per_cell(table: LabelTable, cells: Cells, stream: int) -> NDArray[np.float64]:
    """[m] a uniform random number for each cell."""
    image_keys = np.repeat(keys(table.ids), np.diff(cells.starts))
    return uniform(stream, image_keys, keys(table.classes)[cells.columns])


def _one_positive(table: LabelTable, cells: Cells, seed: int) -> NDArray[np.bool_]:
    """[m] true for one present cell of each image that has any, all equally likely."""
    positions = np.flatnonzero(cells.values == PRESENT)
    present = cells.where(cells.values == PRESENT)
    draws = _draw_per_cell(table, present, key(seed, "single positive"))
    chosen = np.zeros(len(cells.values), dtype=np.bool_)
    chosen[positions[_rank_in_image(present, draws) == 0]] = True
    return chosen


def _rank_in_image(cells: Cells, draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """[m] the rank of each cell's draw among the cells of its image; 0 for the smallest."""
    rank = np.empty(len(draws), dtype=np.int64)
    rank[np.lexsort((draws, cells.rows))] = np.arange(len(draws))
    return rank - np.repeat(cells.starts[:-1], np.diff(cells.starts))


def _smallest(draws: NDArray[np.float64], number: int) -> NDArray[np.bool_]:
    """A mask of the ``number`` smallest draws."""
    chosen = np.zeros(len(draws), dtype=np.bool_)
    chosen[np.argsort(draws, kind="stable")[:number]] = True
    return chosen


def _round_at_random(numbers: NDArray[np.float64], stream: int) -> NDArray[np.int64]:
    """Round up or down, all by the same random number, so that the mean over seeds is exact."""
    exact = np.round(numbers, 9)  # 0.29 * 100 is 28.999999999999996
    return np.floor(exact + uniform(stream)).astype(np.int64)
