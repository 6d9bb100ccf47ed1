"""Several label tables as one."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from partlabel.base.errors import InputError, count, one_of
from partlabel.labels.cells import from_triples
from partlabel.labels.combine import CONFLICT_RULES, Conflict, combine
from partlabel.labels.names import Names
from partlabel.labels.table import LabelTable


def merge(tables: Sequence[LabelTable], conflict: Conflict = "error") -> LabelTable:
    """All tables as one; see :meth:`LabelTable.merge`. Their order matters only to the rule."""
    one_of("conflict rule", conflict, CONFLICT_RULES)
    ids, rows = _union([table.ids for table in tables])
    classes, columns = _union([table.classes for table in tables])
    width = len(classes)
    place = [
        to_row[table.cells.rows] * width + to_column[table.cells.columns]
        for table, to_row, to_column in zip(tables, rows, columns, strict=True)
    ]
    cells = [table.cells for table in tables]
    met = combine(
        np.concatenate(place),
        np.concatenate([part.values for part in cells]),
        np.concatenate([part.scores_or_nan() for part in cells]),
        np.concatenate([part.sources_or_human() for part in cells]),
        conflict,
    )
    splits, torn = _merge_splits(tables, rows, len(ids), conflict)
    clashes = met.place[met.clash]
    if conflict == "error" and (len(clashes) or len(torn)):
        found = []
        if len(clashes):
            row, column = divmod(int(clashes[0]), width)
            first = f"image '{ids[row]}', class '{classes[column]}'"
            found.append(f"{count(len(clashes), 'label')} (first: {first})")
        if len(torn):
            first = ids[int(torn[0])]
            found.append(f"the split of {count(len(torn), 'image')} (first: '{first}')")
        raise InputError(
            f"the tables disagree on {' and '.join(found)}; say which holds with --conflict ours, "
            "theirs or unknown (in Python: conflict=...)"
        )
    at_row, at_column = np.divmod(met.place, max(width, 1))
    joined = from_triples(at_row, at_column, met.value, (len(ids), width), met.score, met.source)
    merged = LabelTable.from_cells(ids, classes, joined, splits)
    merged.conflicts, merged.split_conflicts = len(clashes), len(torn)
    return merged


def _union(parts: list[Names]) -> tuple[Names, list[NDArray[np.int64]]]:
    """All names in order of appearance, and where those of each part are among them."""
    union, places = parts[0], [np.arange(len(parts[0]))]
    for part in parts[1:]:
        at = union.find(part)
        new = np.flatnonzero(at < 0)
        at[new] = len(union) + np.arange(len(new))
        union = Names(pa.concat_arrays([union.plain(), part.take(new).plain()]))
        places.append(at)
    return union, places


def _merge_splits(
    tables: Sequence[LabelTable], rows: list[NDArray[np.int64]], size: int, conflict: Conflict
) -> tuple[Names | None, NDArray[np.int64]]:
    """The split of each image, and the rows of those on whose split the tables disagree."""
    merged, torn = np.full(size, "", dtype=object), np.zeros(size, dtype=np.bool_)
    for table, to_row in zip(tables, rows, strict=True):
        if table.splits is None:
            continue
        new, old = np.array(list(table.splits), dtype=object), merged[to_row]
        torn[to_row] |= (old != "") & (new != "") & (old != new)
        take = (new != "") & ((old == "") | (conflict == "theirs"))
        merged[to_row] = np.where(take, new, old)
    if conflict == "unknown":
        merged[torn] = ""
    has_splits = any(table.splits is not None for table in tables)
    return Names(list(merged)) if has_splits else None, np.flatnonzero(torn)
