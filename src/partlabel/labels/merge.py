"""Merging several label tables into one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from partlabel.base.errors import InputError, count, one_of
from partlabel.labels.cells import Cells, concatenate, from_triples
from partlabel.labels.combine import CONFLICT_RULES, Combined, Conflict, combine
from partlabel.labels.names import Names
from partlabel.labels.table import MOST_ORIGINS, TOO_MANY_ORIGINS, LabelTable

Integers = NDArray[np.int64]

_MUCH = 0.2  # share of contradictions in a class from which its name may mean different things
_FEW = 5  # contradictions in a class that may be mistakes


def merge(
    tables: Sequence[LabelTable],
    conflict: Conflict = "error",
    origins: Sequence[str] | None = None,
) -> LabelTable:
    """Merge tables as :meth:`LabelTable.merge` does.

    Where a human and a model disagree, the human's label is kept.

    Args:
        tables: their order matters to the rules ``"ours"`` (the first wins) and ``"theirs"`` (the
            last wins), and to the order of images and classes.
        conflict: the rule for conflicts.
        origins: a name per table, the origin of its labels that have none yet.

    >>> a, b = LabelTable(["1"], ["cat"], [[1]]), LabelTable(["1"], ["dog"], [[-1]])
    >>> merge([a, b], origins=["north", "south"]).origins
    Names(['north', 'south'])
    """
    return _Union(tables, conflict, origins).table()


@dataclass(frozen=True)
class ClassConflict:
    """How many labels of a class contradict each other, of those that several tables know."""

    name: str
    contradictions: int
    shared: int

    @property
    def suspicious(self) -> bool:
        """Whether the tables probably use this name for different things."""
        return self.contradictions >= _FEW and self.contradictions >= _MUCH * self.shared

    def __str__(self) -> str:
        return f"'{self.name}' ({self.contradictions:,} of {self.shared:,} shared labels)"


@dataclass(frozen=True)
class Contribution:
    """What one table adds to those before it: new images, new classes, new labels."""

    images: int
    classes: int
    labels: int


@dataclass(frozen=True)
class Merged:
    """The result of a merge, and how it came about.

    Args:
        table: the merged table.
        contributions: of each table, in order.
        conflicts: the classes with contradictions, the most frequent first.
        overruled: number of labels of models that a human contradicts.
    """

    table: LabelTable
    contributions: list[Contribution]
    conflicts: list[ClassConflict] = field(default_factory=list)
    overruled: int = 0


def merge_and_count(
    tables: Sequence[LabelTable],
    conflict: Conflict = "error",
    origins: Sequence[str] | None = None,
) -> Merged:
    """Merge tables as :func:`merge` does, and count what each of them adds."""
    union = _Union(tables, conflict, origins)
    return Merged(
        union.table(),
        union.contributions(),
        union.conflicts_by_class(),
        int(union.combined.overruled.sum()),
    )


class _Union:
    """The images, classes and cells of several tables."""

    def __init__(
        self, tables: Sequence[LabelTable], conflict: Conflict, origins: Sequence[str] | None
    ) -> None:
        one_of("conflict rule", conflict, CONFLICT_RULES)
        if origins is not None:
            tables = [table.with_origin(name) for table, name in zip(tables, origins, strict=True)]
        self.tables, self.conflict = tables, conflict
        self.ids, self.rows = _union([table.ids for table in tables])
        self.classes, self.columns = _union([table.classes for table in tables])
        self.origins, self.parts = _with_common_origins(tables)
        width = len(self.classes)
        self.combined = _combine_cells(self.parts, self.rows, self.columns, width, conflict)

    def table(self) -> LabelTable:
        """The merged table; an error if the rule is ``"error"`` and tables disagree."""
        ids, classes, combined = self.ids, self.classes, self.combined
        splits, split_clashes = _merge_splits(self.tables, self.rows, len(ids), self.conflict)
        clashes = combined.cell[combined.clash]
        if self.conflict == "error" and (len(clashes) or len(split_clashes)):
            by_class = self.conflicts_by_class()
            raise _disagreement(ids, classes, clashes, split_clashes, by_class)
        rows, columns = np.divmod(combined.cell, max(len(classes), 1))
        shape = (len(ids), len(classes))
        cells = from_triples(rows, columns, combined.value, shape, combined.details)
        merged = LabelTable.from_cells(ids, classes, cells, splits, self.origins)
        merged.conflicts, merged.split_conflicts = len(clashes), len(split_clashes)
        return merged

    def contributions(self) -> list[Contribution]:
        """The images, classes and labels of each table that no table before it has."""
        combined, group = self.combined, self._group
        known = np.flatnonzero(self._values)[::-1]
        first = np.full(len(combined.cell), -1)
        first[group[known]] = known  # the last assignment to a group wins: its first statement
        ends = np.cumsum([len(part.values) for part in self.parts])
        part_of_label = np.searchsorted(ends, combined.order[first[first >= 0]], side="right")
        labels = np.bincount(part_of_label, minlength=len(self.parts)).tolist()
        new = zip(_new(self.rows), _new(self.columns), labels, strict=True)
        return [Contribution(images, classes, number) for images, classes, number in new]

    def conflicts_by_class(self) -> list[ClassConflict]:
        """The classes with contradictions, the most frequent first."""
        combined, size = self.combined, len(self.classes)
        if not combined.clash.any():
            return []
        known = np.bincount(self._group[self._values != 0], minlength=len(combined.cell))
        column = combined.cell % size
        clashes = np.bincount(column[combined.clash], minlength=size)
        shared = np.bincount(column[known > 1], minlength=size)
        order = np.argsort(-clashes, kind="stable")[: np.count_nonzero(clashes)]
        return [ClassConflict(self.classes[int(j)], int(clashes[j]), int(shared[j])) for j in order]

    @property
    def _group(self) -> Integers:
        """[n] the cell of each statement, in the order of ``combined``."""
        return np.repeat(np.arange(len(self.combined.cell)), np.diff(self.combined.starts))

    @property
    def _values(self) -> NDArray[np.int8]:
        """[n] the value of each statement, in the order of ``combined``."""
        return np.concatenate([part.values for part in self.parts])[self.combined.order]


def _union(parts: list[Names]) -> tuple[Names, list[Integers]]:
    """All names in order of appearance, and for each part the positions of its names in them."""
    union, positions_of_parts = parts[0], [np.arange(len(parts[0]))]
    for part in parts[1:]:
        positions = union.find(part)
        new = np.flatnonzero(positions < 0)
        positions[new] = len(union) + np.arange(len(new))
        union = Names(pa.concat_arrays([union.plain(), part.take(new).plain()]))
        positions_of_parts.append(positions)
    return union, positions_of_parts


def _with_common_origins(tables: Sequence[LabelTable]) -> tuple[Names, list[Cells]]:
    """The origins of all tables, and the cells of each with positions in them."""
    names, positions = _union([table.origins for table in tables])
    if len(names) > MOST_ORIGINS:
        raise InputError(TOO_MANY_ORIGINS)
    parts = []
    for table, position in zip(tables, positions, strict=True):
        cells = table.cells
        if len(position):
            codes = np.concatenate([[0], position + 1]).astype(np.uint8)
            cells = cells.with_details(origins=codes[cells.origins_or_none()])
        parts.append(cells)
    return names, parts


def _combine_cells(
    parts: Sequence[Cells],
    rows: list[Integers],
    columns: list[Integers],
    width: int,
    conflict: Conflict,
) -> Combined:
    """The cells of all tables, each once.

    Args:
        rows, columns: for each table the rows and columns of its cells in the merged table.
        width: number of columns of the merged table.
    """
    cell_index = [
        to_row[part.rows] * width + to_column[part.columns]
        for part, to_row, to_column in zip(parts, rows, columns, strict=True)
    ]
    index, values = np.concatenate(cell_index), np.concatenate([part.values for part in parts])
    origins = np.concatenate([part.origins_or_none() for part in parts])
    return combine(
        index,
        values,
        concatenate([part.details for part in parts], [len(values) for values in cell_index]),
        conflict,
        _tags(origins.astype(np.int64) * width + index % max(width, 1), values),
    )


def _tags(origin: Integers, values: NDArray[np.int8]) -> NDArray[np.bool_]:
    """[n] which statements are present labels of a class of which their origin notes no other.

    Args:
        origin: [n] a number for the origin and the class of each statement.
    """
    notes_absent = np.bincount(origin[values < 0], minlength=int(origin.max(initial=-1)) + 1) > 0
    return np.asarray((values > 0) & ~notes_absent[origin])


def _new(positions: list[Integers]) -> list[int]:
    """How many positions of each part are beyond those of all parts before it."""
    ends = [int(part.max(initial=-1)) + 1 for part in positions]
    reached = np.maximum.accumulate(ends)
    return [int(number) for number in np.diff(reached, prepend=0)]


def _merge_splits(
    tables: Sequence[LabelTable], rows: list[Integers], size: int, conflict: Conflict
) -> tuple[Names | None, Integers]:
    """The split of each image, and the rows of the images on whose split the tables disagree."""
    merged, clash = np.full(size, "", dtype=object), np.zeros(size, dtype=np.bool_)
    for table, to_row in zip(tables, rows, strict=True):
        if table.splits is None:
            continue
        new, old = np.array(list(table.splits), dtype=object), merged[to_row]
        clash[to_row] |= (old != "") & (new != "") & (old != new)
        take_new = (new != "") & ((old == "") | (conflict == "theirs"))
        merged[to_row] = np.where(take_new, new, old)
    if conflict == "unknown":
        merged[clash] = ""
    has_splits = any(table.splits is not None for table in tables)
    return Names(list(merged)) if has_splits else None, np.flatnonzero(clash)


def _disagreement(
    ids: Names,
    classes: Names,
    clashes: Integers,
    split_clashes: Integers,
    by_class: list[ClassConflict],
) -> InputError:
    """The error for tables that disagree on these cells and on the splits of these rows."""
    subjects = []
    if len(clashes):
        row, column = divmod(int(clashes[0]), len(classes))
        first = f"image '{ids[row]}', class '{classes[column]}'"
        subjects.append(f"{count(len(clashes), 'label')} (first: {first})")
    if len(split_clashes):
        first = ids[int(split_clashes[0])]
        subjects.append(f"the split of {count(len(split_clashes), 'image')} (first: '{first}')")
    rules = "choose a rule with --conflict ours, theirs or unknown (in Python: conflict=...)"
    if len(clashes):
        rules += ", or use --corrections if later files correct the first"
    return InputError(
        f"the tables disagree on {' and '.join(subjects)}; {rules}{different_meanings(by_class)}"
    )


def different_meanings(conflicts: Sequence[ClassConflict]) -> str:
    """A sentence about classes whose name probably means different things; empty if none does."""
    suspicious = [conflict for conflict in conflicts if conflict.suspicious]
    if not suspicious:
        return ""
    names = ", ".join(map(str, suspicious[:3]))
    more = f" and {len(suspicious) - 3:,} more" if len(suspicious) > 3 else ""
    return (
        f". Many labels contradict each other in {names}{more}: if the files mean different "
        "things by this name, rename the class in one of them (partlabel convert --rename)"
    )
