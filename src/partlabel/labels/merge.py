"""Two label tables as one."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from partlabel.errors import InputError, count, one_of
from partlabel.labels.cells import Cells, from_triples
from partlabel.labels.names import Names
from partlabel.labels.table import Conflict, LabelTable

CONFLICT_RULES = ("error", "unknown", "ours", "theirs")


def merge(ours: LabelTable, theirs: LabelTable, conflict: Conflict = "error") -> LabelTable:
    """See :meth:`LabelTable.merge`."""
    one_of("conflict rule", conflict, CONFLICT_RULES)
    ids, to_row = _union(ours.ids, theirs.ids)
    classes, to_column = _union(ours.classes, theirs.classes)
    shape = (len(ids), len(classes))

    our_place = ours.cells.rows * shape[1] + ours.cells.columns
    their_place = to_row[theirs.cells.rows] * shape[1] + to_column[theirs.cells.columns]
    _, mine, yours = np.intersect1d(our_place, their_place, True, return_indices=True)
    kept, added, clashes = _resolve(ours.cells, theirs.cells, mine, yours, conflict)
    if len(clashes) and conflict == "error":
        row, column = divmod(int(our_place[clashes[0]]), shape[1])
        raise InputError(
            f"the tables disagree on {count(len(clashes), 'cell')}, first on image '{ids[row]}', "
            f"class '{classes[column]}'; say which holds with --conflict ours, theirs or unknown "
            "(in Python: conflict=...)"
        )
    place = np.concatenate([our_place, their_place[added]])
    cells = from_triples(
        place // max(shape[1], 1),
        place % max(shape[1], 1),
        np.concatenate([kept.values, theirs.cells.values[added]]),
        shape,
        np.concatenate([kept.scores_or_nan(), theirs.cells.scores_or_nan()[added]]),
        np.concatenate([kept.sources_or_human(), theirs.cells.sources_or_human()[added]]),
    )
    splits, split_clashes = _merge_splits(ours, theirs, to_row, len(ids), conflict)
    merged = LabelTable.from_cells(ids, classes, cells, splits)
    merged.conflicts = len(clashes) + split_clashes
    return merged


def _union(ours: Names, theirs: Names) -> tuple[Names, NDArray[np.int64]]:
    """All names, ours first, and where each of theirs is among them."""
    at = ours.find(theirs)
    new = np.flatnonzero(at < 0)
    at[new] = len(ours) + np.arange(len(new))
    return Names(pa.concat_arrays([ours.plain(), theirs.take(new).plain()])), at


def _resolve(
    ours: Cells, theirs: Cells, mine: NDArray[Any], yours: NDArray[Any], conflict: Conflict
) -> tuple[Cells, NDArray[np.bool_], NDArray[Any]]:
    """What our cells become, which of theirs are new, and which of ours clash.

    ``mine`` and ``yours`` are the positions of the cells that both tables have. Where the values
    agree, or only one of them has a value, what is missing is taken from the other side, and a
    human's word counts over a model's.
    """
    values, scores = ours.values.copy(), ours.scores_or_nan().copy()
    sources = ours.sources_or_human().copy()
    a, b = ours.values[mine], theirs.values[yours]
    their_scores, their_sources = theirs.scores_or_nan()[yours], theirs.sources_or_human()[yours]

    clash = a * b == -1
    take = ((a == 0) & (b != 0)) | (clash & (conflict == "theirs"))
    values[mine] = np.where(take, b, a)
    scores[mine] = np.where(take | (np.isnan(scores[mine]) & ~clash), their_scores, scores[mine])
    agreed = np.minimum(sources[mine], their_sources)
    sources[mine] = np.where(take, their_sources, np.where(a == b, agreed, sources[mine]))
    if conflict == "unknown":
        values[mine[clash]], scores[mine[clash]] = 0, np.nan
    new = np.ones(len(theirs.values), dtype=np.bool_)
    new[yours] = False
    return Cells(ours.starts, ours.columns, values, scores, sources), new, mine[clash]


def _merge_splits(
    ours: LabelTable,
    theirs: LabelTable,
    to_row: NDArray[np.int64],
    size: int,
    conflict: Conflict,
) -> tuple[Names | None, int]:
    if ours.splits is None and theirs.splits is None:
        return None, 0
    merged = np.full(size, "", dtype=object)
    merged[: len(ours)] = list(ours.splits or [""] * len(ours))
    new = np.array(list(theirs.splits or [""] * len(theirs)), dtype=object)
    old = merged[to_row]
    clash = (old != "") & (new != "") & (old != new)
    if clash.any() and conflict == "error":
        at = int(np.flatnonzero(clash)[0])
        raise InputError(
            f"the tables put {count(int(clash.sum()), 'image')} in different splits, first "
            f"'{theirs.ids[at]}' in '{old[at]}' and in '{new[at]}'; say which holds with "
            "--conflict ours, theirs or unknown (in Python: conflict=...)"
        )
    chosen = np.where(old == "", new, old)
    if conflict != "ours":
        chosen = np.where(clash, new if conflict == "theirs" else "", chosen)
    merged[to_row] = chosen
    return Names(list(merged)), int(clash.sum())
