"""The split of a run: what it trains on, validates on, and reserves for later tests."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from partlabel.base.errors import FileError, InputError, count, some
from partlabel.base.randomness import key, keys, uniform
from partlabel.images.batches import Rows
from partlabel.labels import CHOSEN, HUMAN, RANDOM, LabelTable
from partlabel.labels.groups import Groups
from partlabel.labels.simulate import HOLDOUT
from partlabel.training.checkpoint import load_state, save_state
from partlabel.training.reserving import draw_reserved, evidence
from partlabel.training.settings import AUTO, Settings

VALIDATION = 0.2  # share of the images, if the settings have none
_RESERVED_IMAGES = 0.5  # share of the images of a split to validate on
_NOTHING: Rows = np.zeros(0, dtype=np.int64)
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
        groups: images that belong together, of all labels; they are in one part, and in one fold.
        hidden: [m] cells of ``labels`` that nothing is chosen on, in images that are trained or
            validated on; None if there are none.
    """

    labels: LabelTable
    classes: list[str]
    side: list[str] | None
    train: Rows
    val: Rows
    reserved: Rows
    groups: Groups
    hidden: NDArray[np.bool_] | None = None

    @cached_property
    def table(self) -> LabelTable:
        """All images, with the classes to learn, without the labels that are hidden."""
        if self.hidden is None:
            return self.known
        visible = self.labels.with_cells(self.labels.cells.where(~self.hidden))
        return self._of_classes(visible)

    @cached_property
    def known(self) -> LabelTable:
        """All images, with the classes to learn and all labels that are known."""
        return self._of_classes(self.labels)

    @cached_property
    def learnable(self) -> LabelTable:
        """All images, with all classes but the side classes, also those that are not learned."""
        side = set(self.side or ())
        if not side:
            return self.labels
        return self.labels.with_classes([n for n in self.labels.classes if n not in side])

    @cached_property
    def tested(self) -> LabelTable:
        """All images, with only those labels that are hidden from training and choosing."""
        hidden = self.hidden if self.hidden is not None else np.zeros(0, dtype=np.bool_)
        if not len(hidden):
            hidden = np.zeros(len(self.labels.cells.values), dtype=np.bool_)
        return self._of_classes(self.labels.with_cells(self.labels.cells.where(hidden)))

    def _of_classes(self, labels: LabelTable) -> LabelTable:
        same = self.classes == list(labels.classes)
        return labels if same else labels.with_classes(self.classes)

    @property
    def training(self) -> LabelTable:
        """The training images."""
        return without_drawn(self.table.subset(self.train))

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
        same = self.classes == other.classes and all(np.array_equal(*pair) for pair in parts)
        return same and self.tested.cells.equals(other.tested.cells)

    def save(self, path: Path) -> None:
        """Write the part of each image, the groups, and which labels are hidden."""
        part = np.full(len(self.labels), _UNUSED, dtype=np.uint8)
        part[self.train], part[self.val], part[self.reserved] = _TRAIN, _VAL, _RESERVED
        state = {"part": part} | ({"group": self.groups.first} if self.groups.groups else {})
        if self.hidden is not None:
            state["hidden"] = np.flatnonzero(self.hidden)
        save_state(path, {name: torch.from_numpy(array) for name, array in state.items()})


def load_selection(
    path: Path, labels: LabelTable, classes: list[str], side: list[str] | None
) -> Selection:
    """Read what :meth:`Selection.save` wrote, for these labels."""
    state = load_state(path)
    state = state if isinstance(state, dict) else {}
    part, group = state.get("part"), state.get("group", torch.arange(len(labels)))
    arrays = [one.numpy() for one in (part, group) if isinstance(one, torch.Tensor)]
    if [array.shape for array in arrays] != [(len(labels),)] * 2:
        raise FileError(path, "does not fit the labels of the run; train again")
    parts, groups = arrays[0], Groups.of_codes(arrays[1].astype(np.int64))
    train, val, reserved = (np.flatnonzero(parts == number) for number in (_TRAIN, _VAL, _RESERVED))
    hidden, cells = state.get("hidden"), len(labels.cells.values)
    mask = None
    if isinstance(hidden, torch.Tensor):
        positions = hidden.numpy()
        if len(positions) and not (positions.min() >= 0 and positions.max() < cells):
            raise FileError(path, "does not fit the labels of the run; train again")
        mask = np.zeros(cells, dtype=np.bool_)
        mask[positions] = True
    return Selection(labels, classes, side, train, val, reserved, groups, mask)


def select(labels: LabelTable, settings: Settings, groups: Groups | None = None) -> Selection:
    """Decide what to train and validate on, and what to reserve.

    Args:
        groups: images of the labels that belong together; None if every image is on its own.
    """
    groups = Groups.none(len(labels)) if groups is None else groups
    side = None if settings.side is None else side_classes(labels, settings.side)
    table = labels
    if side is not None:
        if len(side) == len(labels.classes):
            raise InputError(f"--side {' '.join(settings.side or [])}: leaves no class to learn")
        table = labels.with_classes([name for name in labels.classes if name not in set(side)])
    train, val, held_out = _split(table, settings, groups)
    if not len(train):
        raise InputError("there are no images to train on")
    if held_out and has_both_kinds(evidence(table.subset(val))):
        table = _without_empty(table, train, val, drop=settings.drop_empty)
        share = _RESERVED_IMAGES if settings.reserve is None else settings.reserve
        reserved, val = cut(table, val, share, key(settings.seed, "reserved"), groups)
        return Selection(labels, list(table.classes), side, train, val, reserved, groups)
    hidden = np.zeros(0, dtype=np.bool_)
    if settings.reserve != 0:
        hidden = _hide(labels, table, np.concatenate([train, val]), settings, groups)
        parts = labels, list(table.classes), side, train, val, _NOTHING, groups
        table = Selection(*parts, hidden).table
    table = _without_empty(table, train, val, drop=settings.drop_empty)
    kept = hidden if hidden.any() else None
    return Selection(labels, list(table.classes), side, train, val, _NOTHING, groups, kept)


def _hide(
    labels: LabelTable, table: LabelTable, rows: Rows, settings: Settings, groups: Groups
) -> NDArray[np.bool_]:
    """[m] the cells of all labels that are reserved, of the classes of a table."""
    learned = np.isin(np.arange(len(labels.classes)), labels.classes.find(table.classes))
    hidden = np.zeros(len(labels.cells.values), dtype=np.bool_)
    # auto scores each image by models that were not trained on it, which can test too
    crossed = settings.method == AUTO
    reserved = draw_reserved(
        table, rows, settings.seed, settings.reserve, groups, all_or_none=crossed
    )
    hidden[learned[labels.cells.columns]] = reserved
    return hidden


def _split(table: LabelTable, settings: Settings, groups: Groups) -> tuple[Rows, Rows, bool]:
    """Rows to train on, rows to validate on, and whether the latter are a split of their own."""
    rows, val = _given_parts(table, settings)
    if len(val) or settings.val_split is not None:
        return rows, val, True
    share = _share(settings, evidence(table.subset(rows)))
    val, train = cut(table, rows, share, key(settings.seed, "validation"), groups)
    return train, val, False


def has_own_validation(table: LabelTable, settings: Settings) -> bool:
    """Whether the validation images are a split of their own."""
    return settings.val_split is not None or bool(len(_given_parts(table, settings)[1]))


def _given_parts(table: LabelTable, settings: Settings) -> tuple[Rows, Rows]:
    """Rows to train on, and rows to validate on if they are a split of their own."""
    names = table.split_names
    split = settings.split or ("train" if "train" in names else None)
    has_holdout = HOLDOUT in names and split != HOLDOUT and settings.val is None
    val_split = settings.val_split or (HOLDOUT if has_holdout else None)
    rows = np.arange(len(table)) if split is None else np.flatnonzero(table.in_split(split))
    if val_split is not None:
        val = np.flatnonzero(table.in_split(val_split))
        return np.setdiff1d(rows, val), val
    return rows, np.empty(0, dtype=np.int64)


def _share(settings: Settings, labels: LabelTable) -> float:
    """The share of the images to validate on; ``labels`` are those that can judge a model."""
    if settings.val is not None:
        return settings.val
    # auto holds out each image in turn, so that all of them train and validate
    return 0.0 if settings.method == AUTO and has_both_kinds(labels) else VALIDATION


def _without_empty(table: LabelTable, train: Rows, val: Rows, *, drop: bool) -> LabelTable:
    """The table without classes that are present in no training image; an error unless ``drop``."""
    present = without_drawn(table.subset(train)).counts().present
    empty = [name for name, number in zip(table.classes, present, strict=True) if not number]
    if not empty:
        return table
    if not drop:
        in_val = table.subset(val).with_classes(empty).counts().present.any()
        hint = "some validation images have them: try another --seed or --val-split, or "
        raise InputError(
            f"no training image is known to have {some(empty)}; "
            f"{count(len(empty), 'class', 'classes')} cannot be learned: "
            f"{hint if in_val else ''}leave them out with --drop-empty"
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


def without_drawn(table: LabelTable) -> LabelTable:
    """The labels to train on. Answers to questions drawn at random are kept for testing."""
    return table.with_cells(table.cells.where(table.cells.asked_or_not() != RANDOM))


def has_both_kinds(table: LabelTable) -> bool:
    """Whether some label is known to be present, and some label to be absent."""
    counts = table.counts()
    return bool(counts.present.any() and counts.absent.any())


def cut(
    table: LabelTable, rows: Rows, share: float, seed: int, groups: Groups | None = None
) -> tuple[Rows, Rows]:
    """A random share of these rows, and the other rows; a group is in one of the two.

    Groups come in a random order, and each goes to the share if it has room for all of its images:
    a group that is larger than the share is never in it.
    """
    draws = uniform(seed, keys(table.ids.take(rows)))
    unit = np.arange(len(rows)) if groups is None else groups.part(rows).first
    np.minimum.at(draws, unit, draws.copy())  # a group comes where the first of its images does
    room, chosen = round(share * len(rows)), np.zeros(len(rows), dtype=np.bool_)
    sizes = np.bincount(unit, minlength=len(rows))
    for first in np.unique(unit)[np.argsort(draws[np.unique(unit)], kind="stable")]:
        if sizes[first] <= room:
            chosen[first] = True
            room -= sizes[first]
        if not room:
            break
    return np.sort(rows[chosen[unit]]), np.sort(rows[~chosen[unit]])


def side_classes(table: LabelTable, patterns: list[str]) -> list[str]:
    """The classes whose names match a pattern such as ``species=*``."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in table.classes):
            raise InputError(
                f"--side '{pattern}': matches no class of the labels, such as "
                f"{some(table.classes[:3])}"
            )
    return [n for n in table.classes if any(fnmatchcase(n, pattern) for pattern in patterns)]
