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
from partlabel.labels.table import MOST_ORIGINS

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


def merged(table: LabelTable, seed: int, parts: int = 2) -> LabelTable:
    """Cut the images into parts, each labelled for its own part of the classes.

    This is what a merge of several datasets looks like. The parts of the classes are disjoint and
    of equal size, up to one class. Labels have the origins ``part 1``, ``part 2`` and so on.

    >>> table = LabelTable([str(i) for i in range(100)], list("wxyz"), np.ones((100, 4)))
    >>> np.unique(np.abs(merged(table, seed=0).dense()).sum(axis=1)).tolist()
    [2]
    """
    check_classes("merged", len(table.classes), parts=parts)
    cells = _known_cells(table)
    part_of_image = _cut(uniform(key(seed, "merged", "images"), keys(table.ids)), parts)
    draws = uniform(key(seed, "merged", "classes"), keys(table.classes))
    part_of_class = np.empty(len(table.classes), dtype=np.int64)
    part_of_class[np.argsort(draws, kind="stable")] = np.arange(len(table.classes)) % parts
    part_of_cell = part_of_image[cells.rows]
    kept = part_of_cell == part_of_class[cells.columns]
    names = [f"part {number + 1}" for number in range(parts)]
    return _with_origins(table, cells.where(kept), part_of_cell[kept], names)


def mixed(table: LabelTable, seed: int, full: float = 0.3, tags: float = 0.4) -> LabelTable:
    """Label some images fully and some with one tag, and leave the others without labels.

    Args:
        full: share of the images that keep all labels; their origin is ``full``.
        tags: share of the images that keep one present label; their origin is ``tags``.
    """
    _check_shares(full, tags)
    cells = _known_cells(table)
    draws = uniform(key(seed, "mixed"), keys(table.ids))
    kind_of_cell = np.searchsorted([full, full + tags], draws, side="right")[cells.rows]
    tag = (kind_of_cell == 1) & _one_positive(table, cells, seed)
    kept = (kind_of_cell == 0) | tag
    return _with_origins(table, cells.where(kept), kind_of_cell[kept], ["full", "tags"])


WITH_PROPORTION: dict[str, Callable[[LabelTable, float, int], LabelTable]] = {
    "partial": partial,
    "dense": dense,
    "noisy": noisy,
}
WITHOUT_PROPORTION: dict[str, Callable[..., LabelTable]] = {
    "noisy+": noisy_positive,
    "single-positive": single_positive,
    "positive+negatives": positive_and_negatives,
    "merged": merged,
    "mixed": mixed,
}
OPTIONS = {"parts": "merged", "full": "mixed", "tags": "mixed"}
"""The parameters of single strategies, and which strategy each belongs to."""
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
    **options: float,
) -> LabelTable:
    """Hide labels by one of ``STRATEGIES``, in all images or in those of one split.

    Args:
        proportion: the share of labels that stay known and correct; needed by partial, dense and
            noisy.
        split: hide labels only in this split; other images keep their labels.
        holdout: this share of the images (of the split, if one is given) keeps its labels and
            moves to the split ``"holdout"``, the papers' validation set.
        per_image: for partial, keep the same number of labels in each image.
        options: ``parts`` of :func:`merged`, ``full`` and ``tags`` of :func:`mixed`.
    """
    check(strategy, proportion, holdout, per_image=per_image, **options)
    chosen = np.ones(len(table), np.bool_) if split is None else table.in_split(split)
    if holdout:
        held_out = _draw_holdout(table, np.flatnonzero(chosen), holdout, seed)
        chosen[held_out] = False
        table = _move_to_holdout(table, held_out)
    part = table.subset(chosen)
    if proportion is None:
        hidden = WITHOUT_PROPORTION[strategy](part, seed, **options)
    elif per_image:
        hidden = partial(part, proportion, seed, per_image=True)
    else:
        hidden = WITH_PROPORTION[strategy](part, proportion, seed)
    # the merge puts the chosen rows after the others; argsort restores the original order
    order = np.concatenate([np.flatnonzero(~chosen), np.flatnonzero(chosen)])
    return table.subset(~chosen).merge(hidden).subset(np.argsort(order))


def check(
    strategy: str,
    proportion: float | None,
    holdout: float = 0.0,
    *,
    per_image: bool = False,
    **options: float,
) -> None:
    """Raise an error for arguments that :func:`hide` cannot handle, before a file is read."""
    one_of("strategy", strategy, STRATEGIES)
    if (proportion is None) == (strategy in WITH_PROPORTION):
        need = "needs a proportion" if proportion is None else "takes no proportion"
        raise InputError(f"the strategy '{strategy}' {need} (--proportion)")
    if per_image and strategy != "partial":
        raise InputError(f"--per-image is for the strategy 'partial', not for '{strategy}'")
    for name in options:
        owner = OPTIONS[one_of("option of a strategy", name, OPTIONS)]
        if strategy != owner:
            raise InputError(f"--{name} is for the strategy '{owner}', not for '{strategy}'")
    if strategy == "merged":
        _check_parts(options.get("parts", 2))
    if strategy == "mixed":
        _check_shares(options.get("full", 0.3), options.get("tags", 0.4))
    if proportion is not None:
        _check_share(proportion)
    if not 0 <= holdout < 1:
        raise InputError(f"holdout is {holdout}; it must be at least 0 and less than 1")


def check_classes(strategy: str, classes: int, **options: float) -> None:
    """Raise an error if a table has too few classes for a strategy with these options."""
    if strategy != "merged":
        return
    parts = options.get("parts", 2)
    _check_parts(parts)
    if parts > classes:
        raise InputError(f"{parts} parts need as many classes, and there are {classes}")


def _check_share(proportion: float) -> float:
    if not 0 <= proportion <= 1:
        raise InputError(f"proportion is {proportion}; it must be between 0 and 1")
    return proportion


def _check_parts(parts: float) -> None:
    if not 2 <= parts <= MOST_ORIGINS or parts != int(parts):
        raise InputError(f"parts is {parts}; it must be a whole number from 2 to {MOST_ORIGINS}")


def _check_shares(full: float, tags: float) -> None:
    if not (0 <= full <= 1 and 0 <= tags <= 1 and full + tags <= 1 + 1e-9):
        raise InputError(
            f"full is {full} and tags is {tags}; both are shares of the images, together at most 1"
        )


def _cut(draws: NDArray[np.float64], parts: int) -> NDArray[np.int64]:
    """The part of each draw, if the numbers from 0 to 1 are cut into equal parts."""
    return np.minimum((draws * parts).astype(np.int64), parts - 1)


def _with_origins(
    table: LabelTable, cells: Cells, origin: NDArray[np.int64], names: list[str]
) -> LabelTable:
    """The table with these cells, of which each has the origin of this number."""
    cells = cells.with_details(origins=(origin + 1).astype(np.uint8))
    return LabelTable.from_cells(table.ids, table.classes, cells, table.splits, names)


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
