"""From what a file states, cell by cell, to a table: the part that all readers share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.errors import InputError, some
from partlabel.formats.source import Source
from partlabel.labels import ABSENT, PRESENT, LabelTable, Names
from partlabel.labels.cells import from_triples

Integers = NDArray[Any]


@dataclass(frozen=True)
class Contradiction:
    """A cell that the file states as present in one place and as absent in another."""

    image: str
    label: str
    where: tuple[str, str]

    def __str__(self) -> str:
        one, other = self.where
        return (
            f"image '{self.image}', class '{self.label}': {one} and {other} contradict each other"
        )


@dataclass
class Notes:
    """What a reader noticed that the table cannot hold."""

    format: str = ""
    remarks: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """Images that the file describes more than once."""
    contradictions: list[Contradiction] = field(default_factory=list)
    uncertain: dict[str, int] = field(default_factory=dict)
    """Cells per class that someone looked at and could not decide (CheXpert's -1)."""


@dataclass
class Stated:
    """The cells of a file, in file order; a cell may come more than once.

    Args:
        images: the file's images, each once.
        classes: the file's classes, each once.
        image: [m] which image each cell is of.
        label: [m] which class each cell is of.
        value: [m] int8 in {-1, 0, 1}; 0 keeps ``unlisted`` from filling the cell.
        score: [m] float32 or None.
        source: [m] int8 or None.
        record: [m] which record of the file each cell stands in; None: cell i in record i.
        where: says where in the file a record is.
        splits: a name per image, or None.
    """

    images: Names
    classes: Names
    image: Integers
    label: Integers
    value: NDArray[np.int8]
    score: NDArray[np.float32] | None = None
    source: NDArray[np.int8] | None = None
    record: Integers | None = None
    where: Callable[[int], str] = "record {}".format
    splits: Iterable[str] | None = None
    notes: Notes = field(default_factory=Notes)


def assemble(stated: Stated, unlisted: str | None, *, strict: bool) -> LabelTable:
    """Judge what was stated: merge what agrees, refuse or forget what contradicts itself.

    Args:
        stated: the cells of a file.
        unlisted: ``"absent"`` makes every cell absent that the file does not mention.
        strict: whether a contradiction is an error; else both statements are forgotten.
    """
    s, shape = _once(stated), (len(stated.images), len(stated.classes))
    contradictions = s.notes.contradictions
    if contradictions and strict:
        more = f" ({len(contradictions):,} such cells)" if len(contradictions) > 1 else ""
        raise InputError(f"{contradictions[0]}{more}; keep one of them")
    rows, columns, value, score, origin = s.image, s.label, s.value, s.score, s.source
    if unlisted == "absent":
        silent = np.ones(shape, dtype=np.bool_)
        silent[rows, columns] = False
        more_rows, more_columns = np.nonzero(silent)
        rows, columns = _join(rows, more_rows), _join(columns, more_columns)
        value = _join(value, np.full(len(more_rows), ABSENT, np.int8))
        score = score if score is None else _join(score, np.full(len(more_rows), np.nan))
        origin = origin if origin is None else _join(origin, np.zeros(len(more_rows)))
    cells = from_triples(rows, columns, value, shape, score, origin)
    return LabelTable.from_cells(s.images, s.classes, cells, s.splits)


def _once(s: Stated) -> Stated:
    """Each cell once: statements of the same cell become one, or a contradiction and none."""
    place = s.image.astype(np.int64) * len(s.classes) + s.label
    if len(place) < 2 or (place[1:] > place[:-1]).all():
        return s
    order = np.argsort(place, kind="stable")
    place = place[order]
    new = np.concatenate([[True], place[1:] != place[:-1]])
    if new.all():
        return _reordered(s, order)
    starts, group = np.flatnonzero(new), np.cumsum(new) - 1
    value = s.value[order]
    present = np.bincount(group, value == PRESENT) > 0
    absent = np.bincount(group, value == ABSENT) > 0
    _note_contradictions(s, order, starts, np.flatnonzero(present & absent))
    spoken = np.bincount(group, value != 0) > 1
    _note_repeated(s, np.unique(s.image[order[starts[spoken]]]))

    def first(where: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Of each cell the first statement that fulfils this, or else the first."""
        ranked = np.lexsort((~where, group))
        return np.asarray(order[ranked[starts]])

    keep = ~(present & absent)
    valued = first(value != 0)[keep]
    once = _reordered(s, valued)
    if s.score is not None:
        once.score = s.score[first(~np.isnan(s.score[order]))[keep]]
    return once


def _reordered(s: Stated, order: Integers) -> Stated:
    return replace(
        s,
        image=s.image[order],
        label=s.label[order],
        value=s.value[order],
        score=None if s.score is None else s.score[order],
        source=None if s.source is None else s.source[order],
        record=order if s.record is None else s.record[order],
    )


def _note_contradictions(s: Stated, order: Integers, starts: Integers, clash: Integers) -> None:
    ends = np.append(starts[1:], len(order))
    for cell in clash:
        said = order[starts[cell] : ends[cell]]
        where = [
            f"{s.where(int(at if s.record is None else s.record[at]))} ({word})"
            for sign, word in ((PRESENT, "present"), (ABSENT, "absent"))
            for at in said[s.value[said] == sign][:1]
        ]
        image, label = s.images[int(s.image[said[0]])], s.classes[int(s.label[said[0]])]
        s.notes.contradictions.append(Contradiction(image, label, (where[0], where[1])))


def _note_repeated(s: Stated, images: Integers) -> None:
    known = set(s.notes.repeated)
    s.notes.repeated += [n for n in s.images.take(images.astype(np.int64)) if n not in known]


def _join(array: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([array, more.astype(array.dtype)])


def only_once(source: Source, kind: str, names: list[str]) -> None:
    """Refuse a list of names in which one comes twice."""
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        at = [i + 1 for i, name in enumerate(names) if name == twice[0]]
        places = " and ".join(str(i) for i in at[:2])
        raise source.error(f"the {kind} {some(twice, 1)} is there twice (numbers {places})")
