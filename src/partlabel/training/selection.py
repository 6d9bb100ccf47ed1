"""The split of a run: which images it trains on, validates on, and reserves for later tests."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from partlabel.base.errors import FileError, InputError, count, some
from partlabel.base.randomness import key, keys, uniform
from partlabel.images.batches import Rows
from partlabel.images.folder import ImageFiles, unreadable
from partlabel.images.matching import describe, spellings
from partlabel.labels import CHOSEN, HUMAN, LabelTable
from partlabel.labels.simulate import HOLDOUT
from partlabel.training.checkpoint import load_state, save_state
from partlabel.training.settings import Settings

_VALIDATION = 0.2  # share of the images, if the settings have none
_UNUSED, _TRAIN, _VAL, _RESERVED = range(4)  # the part of each image, as it is stored


@dataclass(frozen=True)
class Selection:
    """Which images and classes a run works with. A run stores it, and everything reads it there.

    Args:
        labels: all labels that the run was given.
        classes: the classes to learn.
        side: classes that only show which images are alike; None without side information.
        train: rows to train on.
        val: rows to choose the epoch and to calibrate on.
        reserved: rows that nothing is chosen on. Guarantees of ``complete`` are tested on them.
    """

    labels: LabelTable
    classes: list[str]
    side: list[str] | None
    train: Rows
    val: Rows
    reserved: Rows

    @property
    def table(self) -> LabelTable:
        """All images, with the classes to learn."""
        same = self.classes == list(self.labels.classes)
        return self.labels if same else self.labels.with_classes(self.classes)

    @property
    def training(self) -> LabelTable:
        """The training images."""
        return self.table.subset(self.train)

    @property
    def validation(self) -> LabelTable:
        """The validation images, with the labels that humans gave."""
        return by_humans(self.table.subset(self.val))

    @property
    def side_information(self) -> LabelTable | None:
        """The side classes of the training images."""
        return None if self.side is None else self.labels.with_classes(self.side).subset(self.train)

    @property
    def used(self) -> Rows:
        """All rows that are used: training, then validation, then reserved."""
        return np.concatenate([self.train, self.val, self.reserved])

    def same_images(self, other: "Selection") -> bool:
        """Whether two runs have the same classes and the same images in each part."""
        parts = zip(
            (self.train, self.val, self.reserved),
            (other.train, other.val, other.reserved),
            strict=True,
        )
        return self.classes == other.classes and all(np.array_equal(*pair) for pair in parts)

    def save(self, path: Path) -> None:
        """Write the part of each image."""
        part = np.full(len(self.labels), _UNUSED, dtype=np.uint8)
        part[self.train], part[self.val], part[self.reserved] = _TRAIN, _VAL, _RESERVED
        save_state(path, {"part": torch.from_numpy(part)})


def load_selection(
    path: Path, labels: LabelTable, classes: list[str], side: list[str] | None
) -> Selection:
    """Read what :meth:`Selection.save` wrote, for these labels."""
    state = load_state(path)
    part = state.get("part") if isinstance(state, dict) else None
    if not isinstance(part, torch.Tensor) or part.shape != (len(labels),):
        raise FileError(path, "does not fit the labels of the run; train again")
    parts = part.numpy()
    train, val, reserved = (np.flatnonzero(parts == number) for number in (_TRAIN, _VAL, _RESERVED))
    return Selection(labels, classes, side, train, val, reserved)


def select(labels: LabelTable, settings: Settings) -> Selection:
    """Decide what to train and validate on, and what to reserve."""
    side = None if settings.side is None else side_classes(labels, settings.side)
    table = labels
    if side is not None:
        if len(side) == len(labels.classes):
            raise InputError(f"--side {' '.join(settings.side or [])}: leaves no class to learn")
        table = labels.with_classes([name for name in labels.classes if name not in set(side)])
    train, val = _split(table, settings)
    if not len(train):
        raise InputError("there are no images to train on")
    table = _without_empty(table, train, val, drop=settings.drop_empty)
    # without labels of both kinds no guarantee can be tested, so no image is reserved
    share = settings.reserve if has_both_kinds(by_humans(table.subset(val))) else 0.0
    reserved, val = cut(table, val, share, key(settings.seed, "reserved"))
    return Selection(labels, list(table.classes), side, train, val, reserved)


def _split(table: LabelTable, settings: Settings) -> tuple[Rows, Rows]:
    """Rows to train on, and rows to validate on."""
    names = table.split_names
    split = settings.split or ("train" if "train" in names else None)
    has_holdout = HOLDOUT in names and split != HOLDOUT and settings.val is None
    val_split = settings.val_split or (HOLDOUT if has_holdout else None)
    rows = np.arange(len(table)) if split is None else np.flatnonzero(table.in_split(split))
    if val_split is not None:
        val = np.flatnonzero(table.in_split(val_split))
        return np.setdiff1d(rows, val), val
    val, train = cut(table, rows, _share(settings), key(settings.seed, "validation"))
    return train, val


def _share(settings: Settings) -> float:
    return _VALIDATION if settings.val is None else settings.val


def _without_empty(table: LabelTable, train: Rows, val: Rows, *, drop: bool) -> LabelTable:
    """The table without classes that are present in no training image; an error unless ``drop``."""
    present = table.subset(train).counts().present
    empty = [name for name, number in zip(table.classes, present, strict=True) if not number]
    if not empty:
        return table
    if not drop:
        in_val = table.subset(val).with_classes(empty).counts().present.any()
        hint = "some validation images have them: try another --seed or --val-split, or "
        raise InputError(
            f"no training image is known to have {some(empty)}; "
            f"{count(len(empty), 'class', 'classes')} cannot be learned: "
            f"{hint if in_val else ''}leave them out with --drop-empty (drop_empty=True)"
        )
    if len(empty) == len(table.classes):
        raise InputError("no class is left to learn: no label is known to be present")
    return table.with_classes([name for name in table.classes if name not in set(empty)])


def by_humans(table: LabelTable) -> LabelTable:
    """The labels that a human gave. Labels that a model filled in are no evidence."""
    return table.with_cells(table.cells.where(table.cells.sources_or_human() == HUMAN))


def not_chosen(table: LabelTable) -> LabelTable:
    """The labels that nobody was asked for by a model's choice: only these are a random sample."""
    return table.with_cells(table.cells.where(table.cells.asked_or_not() != CHOSEN))


def has_both_kinds(table: LabelTable) -> bool:
    """Whether some label is known to be present, and some label to be absent."""
    counts = table.counts()
    return bool(counts.present.any() and counts.absent.any())


def cut(
    table: LabelTable, rows: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A random share of these rows, and the other rows."""
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


def _refuse_shared_files(files: ImageFiles, names: list[str], paths: list[Path]) -> None:
    """Raise an error if two images are one file: it could be trained on and tested on."""
    times = Counter(paths)
    shared = [path for path, number in times.items() if number > 1]
    if shared:
        same = [name for name, path in zip(names, paths, strict=True) if path == shared[0]]
        raise FileError(
            files.folder,
            f"{count(len(shared), 'file')} with more than one image of the labels, such as "
            f"{shared[0].name} with {some(same)}; give each file one name, so that its labels are "
            "one row",
        )


def find_files(
    table: LabelTable,
    files: ImageFiles,
    rows: Rows,
    *,
    strict: bool = False,
    on_note: Callable[[str], object] = lambda message: None,
) -> dict[int, Path]:
    """The image file of each row; a missing file is an error, and with ``strict`` a broken one.

    ``on_note`` is called with a message if files are spelled differently from their images.
    """
    names = list(table.ids.take(rows))
    matches = files.match(names)
    missing = [name for name, match in zip(names, matches, strict=True) if match is None]
    if missing:
        raise FileError(
            files.folder,
            f"{count(len(missing), 'image')} of the label file not found: {some(missing)}; "
            "is this the right folder? `partlabel inspect LABELS --images DIR` lists them",
        )
    paths = {
        row: files.folder / match.file
        for row, match in zip(rows.tolist(), matches, strict=True)
        if match is not None
    }
    _refuse_shared_files(files, names, list(paths.values()))
    if spelled := spellings(matches):
        on_note(f"files of images: {describe(spelled)}")
    if strict:
        broken = unreadable(list(paths.values()))
        if broken:
            path, why = next(iter(broken.items()))
            number = count(len(broken), "image file")
            hint = f"{number} in all. Leave out --strict to skip them"
            raise FileError(path, f"cannot be decoded ({why}); {hint}")
    return paths


def locate_all(table: LabelTable, images: Path) -> list[Path]:
    """The image file of each row of a table; a missing file is an error."""
    files = find_files(table, ImageFiles(images), np.arange(len(table)))
    return [files[row] for row in range(len(table))]
