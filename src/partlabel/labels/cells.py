"""The stated cells of a table, row after row; nothing for cells that nobody spoke of."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

HUMAN, MODEL = 0, 1

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]


class DuplicateCellError(Exception):
    """A cell was given twice; holds its row and its column."""

    def __init__(self, row: int, column: int) -> None:
        super().__init__(row, column)
        self.row, self.column = row, column


@dataclass(frozen=True, eq=False)
class Cells:
    """Compressed rows: the cells of row i are those at ``starts[i]:starts[i + 1]``.

    A cell has a value (present 1, absent -1), or only a score (value 0): what a model thinks of a
    label that is still unknown. Arrays may be memory-mapped; nothing here changes them.

    Args:
        starts: [n + 1]
        columns: [m], ascending within a row
        values: [m] in {-1, 0, 1}
        scores: [m], NaN where there is none; None if there is none anywhere
        sources: [m], HUMAN or MODEL; None if all are human
    """

    starts: Rows
    columns: NDArray[np.int32]
    values: Bytes
    scores: Floats | None = None
    sources: Bytes | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> Rows:
        """[m] the row of each cell."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def equals(self, other: "Cells") -> bool:
        """Whether both state the same."""
        same = all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("starts", "columns", "values")
        )
        return (
            same
            and np.array_equal(self.scores_or_nan(), other.scores_or_nan(), equal_nan=True)
            and np.array_equal(self.sources_or_human(), other.sources_or_human())
        )

    def scores_or_nan(self) -> Floats:
        """[m] the scores, NaN where there is none."""
        if self.scores is None:
            return np.full(len(self.values), np.nan, dtype=np.float32)
        return self.scores

    def sources_or_human(self) -> Bytes:
        """[m] the sources."""
        return np.zeros(len(self.values), np.int8) if self.sources is None else self.sources

    def take(self, rows: Rows) -> "Cells":
        """These rows, in this order."""
        first = np.asarray(self.starts)[rows]
        lengths = np.asarray(self.starts)[rows + 1] - first
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        at = np.arange(starts[-1]) + np.repeat(first - starts[:-1], lengths)
        return self._at(at, starts)

    def where(self, keep: NDArray[np.bool_]) -> "Cells":
        """Only the cells that ``keep`` [m] is true for."""
        kept_before = np.concatenate([[0], np.cumsum(keep)]).astype(np.int64)
        return self._at(np.flatnonzero(keep), kept_before[self.starts])

    def with_values(self, values: Bytes) -> "Cells":
        """The same cells with other values, and without scores and sources: those were about the
        old ones. Cells with value 0 go."""
        return Cells(self.starts, self.columns, values).where(values != 0)

    def dense(self, width: int) -> Bytes:
        """[n, width] with 0 for unknown."""
        out = np.zeros((len(self), width), dtype=np.int8)
        out[self.rows, self.columns] = self.values
        return out

    def tidy(self) -> "Cells":
        """Without cells that say nothing, and without scores or sources if they say nothing."""
        scores, sources = self.scores, self.sources
        has_score = None if scores is None else ~np.isnan(scores)
        says = self.values != 0 if has_score is None else (self.values != 0) | has_score
        if has_score is None or not has_score.any():
            scores = None
        if sources is not None:
            sources = np.where(self.values == 0, HUMAN, sources).astype(np.int8)
            sources = sources if sources.any() else None
        cells = Cells(self.starts, self.columns, self.values, scores, sources)
        return cells if says.all() else cells.where(says)

    def _at(self, at: Rows, starts: Rows) -> "Cells":
        return Cells(
            starts,
            np.asarray(self.columns)[at],
            np.asarray(self.values)[at],
            None if self.scores is None else np.asarray(self.scores)[at],
            None if self.sources is None else np.asarray(self.sources)[at],
        )


def from_triples(
    rows: NDArray[Any],
    columns: NDArray[Any],
    values: Bytes,
    shape: tuple[int, int],
    scores: Floats | None = None,
    sources: Bytes | None = None,
) -> Cells:
    """Cells in any order to rows of cells; one given twice raises :class:`DuplicateCellError`."""
    place = rows.astype(np.int64) * shape[1] + columns
    if len(place) > 1 and not (place[1:] > place[:-1]).all():
        order = np.argsort(place)
        place, columns, values = place[order], columns[order], values[order]
        scores = None if scores is None else scores[order]
        sources = None if sources is None else sources[order]
        twice = np.flatnonzero(place[1:] == place[:-1])
        if len(twice):
            row, column = divmod(int(place[twice[0]]), shape[1])
            raise DuplicateCellError(row, column)
    starts = np.searchsorted(place, np.arange(shape[0] + 1) * shape[1])
    return Cells(starts.astype(np.int64), columns.astype(np.int32), values, scores, sources)


def from_matrix(matrix: Any) -> Cells:
    """A dense or scipy sparse matrix with values in {-1, 0, 1} to cells.

    Raises:
        ValueError: another value is there (its message says which and where).
    """
    if not sparse.issparse(matrix):
        return _from_dense(np.asarray(matrix))
    given: Any = matrix
    if given.format == "csr":
        return _from_csr(given)
    triples = given.tocoo()  # and never tocsr(), which would add up a cell that is given twice
    return from_triples(triples.row, triples.col, _checked(triples.data), triples.shape).tidy()


def _from_dense(matrix: NDArray[Any]) -> Cells:
    if matrix.ndim != 2:
        raise ValueError(f"a label matrix has two axes, images and classes; not {matrix.ndim}")
    rows, columns = np.nonzero(matrix)
    return from_triples(rows, columns, _checked(matrix[rows, columns]), matrix.shape)


def _from_csr(matrix: Any) -> Cells:
    starts = np.array(matrix.indptr, dtype=np.int64)
    columns, values = np.array(matrix.indices, dtype=np.int32), np.array(_checked(matrix.data))
    if not _rises(starts, columns).all():
        index = matrix.indptr.astype(np.int32) if len(columns) < 2**31 else starts
        ordered: Any = sparse.csr_array((values, columns, index), shape=matrix.shape)
        ordered.sort_indices()
        columns, values = ordered.indices.astype(np.int32, copy=False), ordered.data
        stays = np.flatnonzero(~_rises(starts, columns))
        if len(stays):
            row = int(np.searchsorted(starts, stays[0], side="right")) - 1
            raise DuplicateCellError(row, int(columns[stays[0]]))
    return Cells(starts, columns, values).tidy()


def _rises(starts: Rows, columns: NDArray[np.int32]) -> NDArray[np.bool_]:
    """[m - 1] whether each column is followed by a higher one, or by a new row."""
    rises = columns[1:] > columns[:-1]
    rises[starts[(starts > 0) & (starts < len(columns))] - 1] = True
    return np.asarray(rises)


def _checked(values: NDArray[Any]) -> Bytes:
    right = (values == 1) | (values == -1) | (values == 0)
    if not right.all():
        raise ValueError(
            f"{values[~right][0]} is not a label; a label matrix holds 1 (present), "
            "-1 (absent) and 0 (unknown)"
        )
    return values.astype(np.int8, copy=False)
