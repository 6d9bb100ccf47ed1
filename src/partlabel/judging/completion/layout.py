"""Which unknown cells are tested in the same way: by labels of their own group, or by images."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.randomness import key, keys, uniform
from partlabel.images.batches import Rows
from partlabel.judging.completion.held_labels import HeldLabels, Judges, Mask
from partlabel.labels import LabelTable
from partlabel.metrics.known_cells import KnownCells
from partlabel.metrics.sampling import Population, ReservedLabels, Unit
from partlabel.metrics.spread import Spread, joined_spread
from partlabel.training.reserving import counts_by_group, groups_without_reserved, image_groups
from partlabel.training.run_split import Selection

_ALIKE = 0.5  # a group with a lower share of the mean ratio of reserved labels is not tested alone

Columns = NDArray[np.integer[Any]]


class Part(IntEnum):
    """How an unknown cell is tested, and whether its image is in a split that was not used."""

    BY_LABEL = 0
    BY_IMAGE = 1
    BY_IMAGE_OUTSIDE = 2
    TAGGED = 3
    TAGGED_OUTSIDE = 4
    LEFT_OUT = 5  # its image is unlike those that test


PARTS: dict[Unit, tuple[Part, ...]] = {
    "cell": (Part.BY_LABEL,),
    "image": (Part.BY_IMAGE, Part.BY_IMAGE_OUTSIDE),
}
"""The parts that labels, or images, test."""

TAGGED = (Part.TAGGED, Part.TAGGED_OUTSIDE)


@dataclass(frozen=True)
class Layout:
    """The part of each unknown cell.

    Args:
        kind: [n] the kind of each image: a row of ``parts``; -1 for one that cannot be read.
        parts: [K, C] the part of the unknown cells of such images.
        rows, columns: [m] the cells that are not to be filled in, of images that can be read.
        groups: [n] the group of each image. Labels are missing at random within a class and group.
        by_label: [G, C] the number of unknown cells that are tested by label.
        together: [n] the same number for images that belong together, which count as one.
        tagged: [n] images whose labels do not test other images.
    """

    kind: NDArray[np.int64]
    parts: NDArray[np.int8]
    rows: Rows
    columns: Columns
    groups: NDArray[np.int64]
    by_label: NDArray[np.int64]
    together: NDArray[np.int64]
    tagged: Mask

    def of(self, rows: Rows) -> NDArray[np.int8]:
        """[b, C] the part of each cell of readable rows [b], if it is unknown."""
        return np.asarray(self.parts[self.kind[rows]])

    @cached_property
    def of_known(self) -> NDArray[np.int8]:
        """[m] the part that the cells would have that are not to be filled in."""
        return np.asarray(self.parts[self.kind[self.rows], self.columns])

    def counts(self, group: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        """[number, P, C] the unknown cells of each part, by a group of images [n]."""
        kinds, classes = self.parts.shape
        readable = self.kind >= 0
        images = counts_by_group(group[readable], self.kind[readable], (number, kinds))
        result = np.zeros((number, len(Part), classes), dtype=np.int64)
        for part in Part:
            known = self.of_known == part
            cells = group[self.rows[known]], self.columns[known]
            result[:, part] = images @ (self.parts == part)
            result[:, part] -= counts_by_group(*cells, (number, classes))
        return result

    @cached_property
    def unknown(self) -> NDArray[np.int64]:
        """[P, C] the number of unknown cells of each part."""
        return np.asarray(self.counts(np.zeros_like(self.kind), 1)[0])

    def open_images(self, parts: Collection[Part], classes: Rows | None = None) -> Mask:
        """[n] which images have unknown cells of some parts, of some classes or of any."""
        inside = np.ones(self.parts.shape[1], dtype=np.bool_)
        if classes is not None:
            inside = np.isin(np.arange(len(inside)), classes)
        all_cells = (np.isin(self.parts, list(parts)) & inside).sum(axis=1)
        known = np.isin(self.of_known, list(parts)) & inside[self.columns]
        known_cells = np.bincount(self.rows[known], minlength=len(self.kind))
        readable = self.kind >= 0
        return np.asarray(readable & (np.where(readable, all_cells[self.kind], 0) > known_cells))

    def leave_out(self, images: Mask, classes: Rows) -> "Layout":
        """The same, but cells of some images and classes that other images test are left out."""
        shared = [Part.BY_IMAGE, Part.BY_IMAGE_OUTSIDE, *TAGGED]
        more = self.parts.copy()
        own = more[:, classes]
        more[:, classes] = np.where(np.isin(own, shared), Part.LEFT_OUT, own)
        state = np.where(self.kind >= 0, self.kind + len(more) * images, -1)
        return replace(self, **_reduced(state, np.concatenate([self.parts, more])))


def _reduced(state: NDArray[np.int64], parts: NDArray[np.int8]) -> dict[str, NDArray[Any]]:
    """Kinds of images, each with other parts than all others, given the state of each image."""
    used, place = np.unique(parts, axis=0, return_inverse=True)
    return {"kind": np.where(state >= 0, place.reshape(-1)[state], -1), "parts": used}


def lay_out(
    selection: Selection, held: HeldLabels, seed: int, table: LabelTable | None = None
) -> Layout:
    """Decide how unknown cells are tested. It does not depend on scores, or on labels that test.

    Args:
        selection: what a run was trained and validated on.
        held: its labels that test.
        seed: of the run.
        table: the images of the selection, and after them others; None for those alone.
    """
    known, number = table or selection.known, len(selection.known)
    if held.kind == "cross":
        groups = image_groups(selection.known)
    else:  # as they were when labels were reserved
        groups = groups_without_reserved(
            selection.learnable, selection.used, seed, selection.groups
        )
    of_image = np.zeros(len(known), dtype=np.int64)
    of_image[:number] = groups.of_image
    together = np.arange(len(known))
    together[:number] = selection.groups.first
    used = np.zeros(len(known), dtype=np.bool_)
    used[selection.train if held.kind == "cross" else selection.used] = True
    cells = known.cells
    rows = cells.rows
    counted = held.readable[rows] & (cells.values != 0)
    rows, columns = rows[counted], cells.columns[counted]
    usual, shape = held.readable & used, (len(groups.random), len(known.classes))
    own = usual[rows]
    missing = np.bincount(of_image[usual], minlength=shape[0])[:, None] - counts_by_group(
        of_image[rows[own]], columns[own], shape
    )
    alone = np.zeros(shape, dtype=np.bool_)
    if not len(selection.reserved):
        alone = _tested_alone(missing, held.tested, of_image, groups.random)
    outside = np.zeros(len(known), dtype=np.bool_)
    outside[np.setdiff1d(np.arange(number), selection.used)] = True
    state, parts = _states(of_image, alone, used, outside, held.tagged)
    kinds = _reduced(np.where(held.readable, state, -1), parts)
    by_label = np.where(alone, missing, 0)
    return Layout(**kinds, rows=rows, columns=columns, groups=of_image, by_label=by_label,
                  together=together, tagged=held.tagged)  # fmt: skip


def _tested_alone(
    missing: NDArray[np.int64], tests: Judges, group: NDArray[np.int64], random: Mask
) -> Mask:
    """[G, C] classes and groups whose own reserved labels are a sample of their unknown ones."""
    shape = missing.shape[0], missing.shape[1]
    reserved = counts_by_group(group[tests.rows], tests.columns, shape)
    mean = reserved[random].sum() / max(missing[random].sum(), 1)
    return np.asarray((reserved >= _ALIKE * mean * missing) & (reserved > 0) & random[:, None])


def _states(
    group: NDArray[np.int64], alone: Mask, by_group: Mask, outside: Mask, tagged: Mask
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """A state of each image [n], and the parts of the cells of images in each state [S, C].

    Args:
        group: [n] the groups of images.
        alone: [G, C] classes and groups that are tested by label.
        by_group: [n] images that may be tested by label.
        outside: [n] images of splits that were not used.
        tagged: [n] images with tags.
    """
    by_image = np.where(outside, Part.BY_IMAGE_OUTSIDE, Part.BY_IMAGE)
    otherwise = np.where(tagged, np.where(outside, Part.TAGGED_OUTSIDE, Part.TAGGED), by_image)
    some_alone = np.vstack([alone, np.zeros_like(alone[:1])])  # the last row is of other images
    state = np.where(by_group, group, len(alone)) * len(Part) + otherwise
    parts = np.where(some_alone[:, None], Part.BY_LABEL, np.arange(len(Part))[:, None])
    return state, parts.reshape(-1, alone.shape[1]).astype(np.int8)


def reserved_labels(
    layout: Layout,
    tested: KnownCells,
    ends: tuple[NDArray[np.float64], NDArray[np.float64]],
    seed: int,
    table: LabelTable,
) -> ReservedLabels:
    """Labels that test, with random numbers that make ratios equal.

    Args:
        tested: reserved labels.
        ends: [t] their calibrated logits, rounded down and up as those of unknown cells are.
        seed: of the random numbers.
        table: the images.
    """
    images, place = np.unique(tested.rows, return_inverse=True)
    names = keys(table.ids.take(images))[place], keys(table.classes)[tested.columns]
    return ReservedLabels(
        tested.columns.astype(np.int64),
        tested.labels,
        *ends,
        uniform(key(seed, "equal ratios"), *names),
        layout.groups[tested.rows],
        layout.together[tested.rows],
        tested.rows.astype(np.int64),
    )


def populations(
    layout: Layout,
    tests: ReservedLabels,
    spreads: dict[Part, Spread],
    *,
    some_left_out: bool = False,
) -> list[Population]:
    """The cells to fill in with the labels that test them: drawn by label, and by image.

    Args:
        tests: labels that test; those of tagged images do so by label only.
        spreads: the calibrated logits of the unknown cells of each part.
        some_left_out: whether images that other images would test are left out, maybe all of them.
    """
    classes, result = layout.parts.shape[1], []
    if layout.by_label.any():
        same = (layout.by_label > 0)[tests.groups, tests.columns]
        spread = spreads[Part.BY_LABEL]
        result.append(Population(spread, layout.by_label, tests.take(same), "cell"))
    by_image = layout.unknown[list(PARTS["image"])].sum(axis=0, keepdims=True)
    if by_image.any() or some_left_out:
        spread = joined_spread([spreads[p] for p in PARTS["image"] if p in spreads], classes)
        tests = tests.take(~layout.tagged[tests.rows])
        tests = tests._replace(groups=np.zeros_like(tests.groups))
        result.append(Population(spread, by_image, tests, "image"))
    return result
