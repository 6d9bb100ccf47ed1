"""Which images are trained and validated on, where their files are, and which labels are truth."""

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError, InputError, count, some
from partlabel.base.randomness import key, keys, uniform
from partlabel.images.folder import ImageFiles, unreadable
from partlabel.labels import HUMAN, LabelTable
from partlabel.labels.simulate import HOLDOUT
from partlabel.training.settings import Settings


class Selection(NamedTuple):
    """What a training works on.

    Args:
        table: the labels, without classes that cannot be learned or are side information.
        train: rows to train on.
        val: rows to choose the epoch and to calibrate on.
        reserved: rows of the same kind that nothing is chosen on: what is promised of labels that
            are filled in is tested on these.
    """

    table: LabelTable
    train: NDArray[np.int64]
    val: NDArray[np.int64]
    reserved: NDArray[np.int64]


def by_humans(table: LabelTable) -> LabelTable:
    """The labels that a human gave: what a model filled in is no truth to measure by."""
    return table.with_cells(table.cells.where(table.cells.sources_or_human() == HUMAN))


def choose_rows(table: LabelTable, settings: Settings) -> Selection:
    """Say what to train and validate on, and what to keep for later."""
    if settings.side is not None:
        aside = set(side_classes(table, settings.side))
        if len(aside) == len(table.classes):
            raise InputError(
                f"--side '{settings.side}': matches all classes; none is left to learn"
            )
        table = table.with_classes([name for name in table.classes if name not in aside])
    names = set(table.splits.array.dictionary.to_pylist()) if table.splits is not None else set()
    split = settings.split or ("train" if "train" in names else None)
    val_split = settings.val_split or (HOLDOUT if HOLDOUT in names and split != HOLDOUT else None)
    rows = np.arange(len(table)) if split is None else np.flatnonzero(table.in_split(split))
    if val_split is not None:
        val = np.flatnonzero(table.in_split(val_split))
        rows = np.setdiff1d(rows, val)
    else:
        val, rows = _cut(table, rows, settings.val, key(settings.seed, "validation"))
    if not len(rows):
        raise InputError("there are no images to train on")
    present = table.subset(rows).counts().present
    empty = [name for name, number in zip(table.classes, present, strict=True) if not number]
    if empty and not settings.drop_empty:
        there = table.subset(val).with_classes(empty).counts().present.any()
        moved = (
            "the validation images have some: try another --seed or --val-split, or "
            if there
            else ""
        )
        raise InputError(
            f"no training image is known to have {some(empty)}; "
            f"{count(len(empty), 'class', 'classes')} cannot be learned: {moved}"
            "leave them out with --drop-empty (drop_empty=True)"
        )
    if empty:
        table = table.with_classes([name for name in table.classes if name not in set(empty)])
    if not len(table.classes):
        raise InputError("no class is left to learn: no label is known to be present")
    # without labels of both kinds nothing can be tested, so nothing is reserved
    share = settings.reserve if of_both_kinds(by_humans(table.subset(val))) else 0.0
    reserved, val = _cut(table, val, share, key(settings.seed, "reserved"))
    return Selection(table, rows, val, reserved)


def of_both_kinds(table: LabelTable) -> bool:
    """Whether some label is known to be present, and some to be absent."""
    counts = table.counts()
    return bool(counts.present.any() and counts.absent.any())


def _cut(
    table: LabelTable, rows: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A random share of these rows, and the others."""
    order = np.argsort(uniform(seed, keys(table.ids.take(rows))), kind="stable")
    number = round(share * len(rows))
    return np.sort(rows[order[:number]]), np.sort(rows[order[number:]])


def side_classes(table: LabelTable, patterns: list[str]) -> list[str]:
    """The classes whose names match a pattern such as ``species=*``."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in table.classes):
            raise InputError(
                f"--side '{pattern}': matches no class of the labels, such as "
                f"{some(table.classes[:3])}"
            )
    return [n for n in table.classes if any(fnmatchcase(n, pattern) for pattern in patterns)]


def find_files(
    table: LabelTable, files: ImageFiles, rows: NDArray[np.int64], *, strict: bool
) -> dict[int, Path]:
    """The image file of each row; a missing one is an error, and with ``strict`` a broken one."""
    names = list(table.ids.take(rows))
    found = dict(zip(rows.tolist(), files.locate(names), strict=True))
    missing = [name for name, path in zip(names, found.values(), strict=True) if path is None]
    if missing:
        raise FileError(
            files.folder,
            f"{count(len(missing), 'image')} of the label file not found: {some(missing)}; "
            "is this the right folder? `partlabel inspect LABELS --images DIR` lists them",
        )
    paths = {row: path for row, path in found.items() if path is not None}
    if strict:
        broken = unreadable(list(paths.values()))
        if broken:
            path, why = next(iter(broken.items()))
            number = count(len(broken), "image file")
            raise FileError(path, f"cannot be decoded ({why}); {number} like this, and --strict")
    return paths


def locate_all(table: LabelTable, images: str | os.PathLike[str]) -> list[Path]:
    """The image file of each row of a table; a missing one is an error."""
    files = find_files(table, ImageFiles(images), np.arange(len(table)), strict=False)
    return [files[row] for row in range(len(table))]
