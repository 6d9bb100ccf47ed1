"""Folds of the training images, in which the known labels of each class are spread evenly."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from partlabel.base.randomness import key, keys, uniform
from partlabel.images.batches import Rows
from partlabel.labels import LabelTable
from partlabel.labels.groups import Groups

Folds = NDArray[np.int64]


def make_folds(table: LabelTable, number: int, seed: int, groups: Groups | None = None) -> Folds:
    """The fold of each image, from 0 to ``number`` - 1.

    Groups come first, each as a whole, to the fold that has fewest of the labels they have.

    Images with a rare kind of label (a class that is known to be present, or known to be absent)
    are dealt out first, each kind in turn to the folds that have fewest labels of it. A kind with
    at least as many labels as folds then has labels in each fold, unless other, rarer kinds on the
    same images prevent it.

    Args:
        table: the training images.
        number: of folds.
        seed: of the order in which the images of a kind are dealt out.
        groups: training images that belong together; None if every image is on its own.
    """
    draws = uniform(key(seed, "folds"), keys(table.ids))
    order = np.argsort(draws, kind="stable")
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    folds = np.full(len(table), -1, dtype=np.int64)
    if groups is not None and groups.groups:
        _place_groups(folds, table, groups, position, number)
    for rows in _kinds(table):
        _deal(folds, rows[np.argsort(position[rows])], number)
    _deal(folds, order, number)
    return folds


def _place_groups(
    folds: Folds, table: LabelTable, groups: Groups, position: Rows, number: int
) -> None:
    """Give each group of several images a fold: those with the largest share of a kind first."""
    cells = table.cells.where(table.cells.values != 0)
    kind = 2 * cells.columns.astype(np.int64) + (cells.values > 0)
    ones, shape = np.ones(len(kind)), (len(table), 2 * len(table.classes) + 1)
    images = np.arange(len(table))  # the last kind is that of all images
    rows = np.concatenate([groups.first[cells.rows], groups.first[images]])
    columns = np.concatenate([kind, np.full(len(images), shape[1] - 1)])
    counts = sparse.csr_array((np.r_[ones, np.ones(len(images))], (rows, columns)), shape=shape)
    counts.sum_duplicates()
    shares = counts.multiply(1 / np.maximum(counts.sum(axis=0), 1)).tocsr()
    firsts = np.unique(groups.first[groups.sizes > 1])
    largest = shares[firsts].max(axis=1).toarray().ravel()
    have, fold_of = np.zeros((number, shape[1])), np.full(len(table), -1, dtype=np.int64)
    for first in firsts[np.lexsort((position[firsts], -largest))]:
        own = slice(shares.indptr[first], shares.indptr[first + 1])
        kinds, share = shares.indices[own], shares.data[own]
        fold = int(np.argmin(have[:, kinds] @ share))
        have[fold, kinds] += share
        fold_of[first] = fold
    folds[:] = fold_of[groups.first]


def _kinds(table: LabelTable) -> Iterator[Rows]:
    """The images of each kind of label, the rarest kind first."""
    cells = table.cells.where(table.cells.values != 0)
    kind = 2 * cells.columns.astype(np.int64) + (cells.values > 0)
    order = np.argsort(kind, kind="stable")
    rows = cells.rows[order]
    counts = np.bincount(kind, minlength=2 * len(table.classes))
    ends = np.cumsum(counts)
    for number in np.argsort(counts, kind="stable"):
        if counts[number]:
            yield rows[ends[number] - counts[number] : ends[number]]


def _deal(folds: Folds, rows: Rows, number: int) -> None:
    """Deal out those of the rows that have no fold, each to the fold with fewest of the rows."""
    waiting = rows[folds[rows] < 0]
    dealt = np.bincount(folds[rows][folds[rows] >= 0], minlength=number)
    # the seats of a fold are numbered from the images that it has; the lowest seats are taken
    seats = (dealt[:, None] + np.arange(len(waiting))[None, :]).ravel()
    owners = np.repeat(np.arange(number), len(waiting))
    sizes = np.bincount(folds[folds >= 0], minlength=number)
    lowest = np.lexsort((owners, sizes[owners], seats))[: len(waiting)]
    folds[waiting] = owners[lowest]
