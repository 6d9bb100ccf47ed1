"""The papers' labelling settings, made from a table in which everything is known.

Every draw belongs to an image and a class by name (see ``randomness``), so it does not depend on
the order or the number of images, and with the same seed the labels known at 10% are among those
known at 20%. Cells that are unknown in the table stay unknown.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError, one_of
from partlabel.base.randomness import key, keys, uniform
from partlabel.labels import ABSENT, PRESENT, Cells, LabelTable

HOLDOUT = "holdout"


def partial(table: LabelTable, proportion: float, seed: int, per_image: bool = False) -> LabelTable:
    """Keep each known label with the probability ``proportion``.

    Args:
        per_image: keep the same number in each image instead: ``proportion`` of its known labels,
            rounded up or down for all images alike, such that it is right in the mean over seeds.

    >>> table = LabelTable(["a", "b"], list("wxyz"), np.ones((2, 4)))
    >>> np.abs(partial(table, 0.5, seed=0, per_image=True).dense()).sum(axis=1).tolist()
    [2, 2]
    """
    cells = _known(table)
    draw = _per_cell(table, cells, key(seed, "partial"))
    if not per_image:
        return table.with_cells(cells.where(draw < _share(proportion)))
    known = np.diff(cells.starts)
    number = _rounded(_share(proportion) * known, key(seed, "partial", "rounding"))
    return table.with_cells(cells.where(_rank(cells, draw) < np.repeat(number, known)))


def dense(table: LabelTable, proportion: float, seed: int) -> LabelTable:
    """Keep all labels of a share of the images, and none of the others.

    The number of images is ``proportion`` of all, rounded such that it is right in the mean over
    seeds.
    """
    cells = _known(table)
    draw = uniform(key(seed, "dense"), keys(table.ids))
    wanted = np.array([_share(proportion) * len(table)])
    chosen = _smallest(draw, int(_rounded(wanted, key(seed, "dense", "rounding"))[0]))
    return table.with_cells(cells.where(np.repeat(chosen, np.diff(cells.starts))))


def noisy(table: LabelTable, proportion: float, seed: int) -> LabelTable:
    """Keep each label right with the probability ``proportion``, else turn it round."""
    cells = _known(table)
    right = _per_cell(table, cells, key(seed, "noisy")) < _share(proportion)
    return table.with_cells(cells.with_values(np.where(right, cells.values, -cells.values)))


def noisy_positive(table: LabelTable, seed: int) -> LabelTable:
    """Keep one present label of each image, and call its other present labels absent."""
    cells = _known(table)
    wrong = (cells.values == PRESENT) & ~_one_positive(table, cells, seed)
    return table.with_cells(
        cells.with_values(np.where(wrong, ABSENT, cells.values).astype(np.int8))
    )


def single_positive(table: LabelTable, seed: int) -> LabelTable:
    """Keep one present label of each image and nothing else.

    Images in which nothing is present stay, with nothing known.
    """
    cells = _known(table)
    return table.with_cells(cells.where(_one_positive(table, cells, seed)))


def positive_and_negatives(table: LabelTable, seed: int) -> LabelTable:
    """Keep one present label and all absent labels of each image."""
    cells = _known(table)
    return table.with_cells(
        cells.where((cells.values == ABSENT) | _one_positive(table, cells, seed))
    )


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
        proportion: the share of labels that stay right and known; for partial, dense and noisy.
        split: hide labels only here, other images stay as they are.
        holdout: a share of the images (of the split) keeps its labels and becomes the split
            ``"holdout"``: the papers' validation set.
        per_image: for partial, keep the same number in each image.
    """
    check(strategy, proportion, holdout, per_image=per_image)
    chosen = np.ones(len(table), np.bool_) if split is None else table.in_split(split)
    if holdout:
        rows = np.flatnonzero(chosen)
        draw = uniform(key(seed, "holdout"), keys(table.ids.take(rows)))
        held = rows[_smallest(draw, round(holdout * len(rows)))]
        chosen[held] = False
        if table.splits is not None and HOLDOUT in table.splits:
            raise InputError(f"the table has a split '{HOLDOUT}' already; leave out --holdout")
        names = np.array(list(table.splits or ["train"] * len(table)), dtype=object)
        names[held] = HOLDOUT
        table = table.with_splits(list(names))
    part = table.subset(chosen)
    if proportion is None:
        hidden = WITHOUT_PROPORTION[strategy](part, seed)
    elif per_image:
        hidden = partial(part, proportion, seed, per_image=True)
    else:
        hidden = WITH_PROPORTION[strategy](part, proportion, seed)
    # the hidden rows after the others, then everything back in its place
    order = np.concatenate([np.flatnonzero(~chosen), np.flatnonzero(chosen)])
    return table.subset(~chosen).merge(hidden).subset(np.argsort(order))


def check(
    strategy: str, proportion: float | None, holdout: float = 0.0, *, per_image: bool = False
) -> None:
    """Refuse what :func:`hide` cannot do, before anything is read."""
    one_of("strategy", strategy, STRATEGIES)
    if (proportion is None) == (strategy in WITH_PROPORTION):
        need = "needs a proportion" if proportion is None else "takes no proportion"
        raise InputError(f"the strategy '{strategy}' {need} (--proportion)")
    if per_image and strategy != "partial":
        raise InputError(f"--per-image goes with the strategy 'partial', not with '{strategy}'")
    if proportion is not None:
        _share(proportion)
    if not 0 <= holdout < 1:
        raise InputError(f"holdout is {holdout}; it must be at least 0 and less than 1")


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise InputError(f"proportion is {value}; a share lies between 0 and 1")
    return value


def _known(table: LabelTable) -> Cells:
    """The known cells, without scores: those would betray what is hidden."""
    cells = table.cells
    return cells.with_values(cells.values)


def _per_cell(table: LabelTable, cells: Cells, stream: int) -> NDArray[np.float64]:
    """[m] a uniform number for each cell."""
    image = np.repeat(keys(table.ids), np.diff(cells.starts))
    return uniform(stream, image, keys(table.classes)[cells.columns])


def _one_positive(table: LabelTable, cells: Cells, seed: int) -> NDArray[np.bool_]:
    """[m] true for one present cell of each image that has one, each with the same probability."""
    positive = np.flatnonzero(cells.values == PRESENT)
    present = cells.where(cells.values == PRESENT)
    first = _rank(present, _per_cell(table, present, key(seed, "single positive"))) == 0
    chosen = np.zeros(len(cells.values), dtype=np.bool_)
    chosen[positive[first]] = True
    return chosen


def _rank(cells: Cells, draw: NDArray[np.float64]) -> NDArray[np.int64]:
    """[m] the place of each cell among those of its image, the smallest draw first."""
    rank = np.empty(len(draw), dtype=np.int64)
    rank[np.lexsort((draw, cells.rows))] = np.arange(len(draw))
    return rank - np.repeat(cells.starts[:-1], np.diff(cells.starts))


def _smallest(draw: NDArray[np.float64], number: int) -> NDArray[np.bool_]:
    chosen = np.zeros(len(draw), dtype=np.bool_)
    chosen[np.argsort(draw, kind="stable")[:number]] = True
    return chosen


def _rounded(wanted: NDArray[np.float64], stream: int) -> NDArray[np.int64]:
    """Up or down, all by the same draw, so that the mean over seeds is what was wanted."""
    exact = np.round(wanted, 9)  # 0.29 * 100 is 28.999999999999996
    return np.floor(exact + uniform(stream)).astype(np.int64)
