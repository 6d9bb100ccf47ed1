"""Merging several label tables into one."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from partlabel.base.errors import InputError, count, one_of
from partlabel.labels.cells import from_triples
from partlabel.labels.combine import CONFLICT_RULES, Combined, Conflict, combine
from partlabel.labels.names import Names
from partlabel.labels.table import LabelTable


def merge(tables: Sequence[LabelTable], conflict: Conflict = "error") -> LabelTable:
    """Merge tables as :meth:`LabelTable.merge` does.

    The order of the tables matters to the rules ``"ours"`` (the first wins) and ``"theirs"`` (the
    last wins), and to the order of images and classes.
    """
    one_of("conflict rule", conflict, CONFLICT_RULES)
    ids, rows = _union([table.ids for table in tables])
    classes, columns = _union([table.classes for table in tables])
    width = len(classes)
    combined = _combine_cells(tables, rows, columns, width, conflict)
    splits, split_clashes = _merge_splits(tables, rows, len(ids), conflict)
    clashes = combined.cell[combined.clash]
    if conflict == "error" and (len(clashes) or len(split_clashes)):
        raise _disagreement(ids, classes, clashes, split_clashes)
    merged_rows, merged_columns = np.divmod(combined.cell, max(width, 1))
    cells = from_triples(
        merged_rows,
        merged_columns,
        combined.value,
        (len(ids), width),
        combined.score,
        combined.source,
    )
    merged = LabelTable.from_cells(ids, classes, cells, splits)
    merged.conflicts, merged.split_conflicts = len(clashes), len(split_clashes)
    return merged


def _union(parts: list[Names]) -> tuple[Names, list[NDArray[np.int64]]]:
    """All names in order of appearance, and for each part the positions of its names in them."""
    union, positions_of_parts = parts[0], [np.arange(len(parts[0]))]
    for part in parts[1:]:
        positions = union.find(part)
        new = np.flatnonzero(positions < 0)
        positions[new] = len(union) + np.arange(len(new))
        union = Names(pa.concat_arrays([union.plain(), part.take(new).plain()]))
        positions_of_parts.append(positions)
    return union, positions_of_parts


def _combine_cells(
    tables: Sequence[LabelTable],
    rows: list[NDArray[np.int64]],
    columns: list[NDArray[np.int64]],
    width: int,
    conflict: Conflict,
) -> Combined:
    """The cells of all tables, each once.

    Args:
        rows, columns: for each table the rows and columns of its cells in the merged table.
        width: number of columns of the merged table.
    """
    cell_index = [
        to_row[table.cells.rows] * width + to_column[table.cells.columns]
        for table, to_row, to_column in zip(tables, rows, columns, strict=True)
    ]
    parts = [table.cells for table in tables]
    return combine(
        np.concatenate(cell_index),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.scores_or_nan() for part in parts]),
        np.concatenate([part.sources_or_human() for part in parts]),
        conflict,
    )


def _merge_splits(
    tables: Sequence[LabelTable], rows: list[NDArray[np.int64]], size: int, conflict: Conflict
) -> tuple[Names | None, NDArray[np.int64]]:
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
    ids: Names, classes: Names, clashes: NDArray[np.int64], split_clashes: NDArray[np.int64]
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
    return InputError(
        f"the tables disagree on {' and '.join(subjects)}; choose a rule with --conflict ours, "
        "theirs or unknown (in Python: conflict=...)"
    )
