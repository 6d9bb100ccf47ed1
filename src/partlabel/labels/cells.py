"""The stored cells of a label table, row by row; all other cells are unknown."""

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
    """Compressed sparse rows: the cells of row i are those at ``starts[i]:starts[i + 1]``.

    The value of a cell is 1 (present), -1 (absent) or 0 (unknown). An unknown cell is stored only
    if it has a score, which is a model's estimate. Arrays may be memory-mapped; no method changes
    them.

    Args:
        starts: [n + 1]
        columns: [m], ascending within a row
        values: [m] in {-1, 0, 1}
        scores: [m], NaN for a cell without score; None if no cell has one
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
        """Whether both hold the same cells with the same values, scores and sources."""
        same_values = all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("starts", "columns", "values")
        )
        return (
            same_values
            and np.array_equal(self.scores_or_nan(), other.scores_or_nan(), equal_nan=True)
            and np.array_equal(self.sources_or_human(), other.sources_or_human())
        )

    def scores_or_nan(self) -> Floats:
        """[m] the scores, NaN for a cell without score."""
        if self.scores is None:
            return np.full(len(self.values), np.nan, dtype=np.float32)
        return self.scores

    def sources_or_human(self) -> Bytes:
        """[m] the sources, HUMAN for all cells if none are stored."""
        return np.zeros(len(self.values), np.int8) if self.sources is None else self.sources

    def take(self, rows: Rows) -> "Cells":
        """The cells of these rows, in this order."""
        first = np.asarray(self.starts)[rows]
        lengths = np.asarray(self.starts)[rows + 1] - first
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        positions = np.arange(starts[-1]) + np.repeat(first - starts[:-1], lengths)
        return self._select(positions, starts)

    def where(self, keep: NDArray[np.bool_]) -> "Cells":
        """Only the cells for which ``keep`` [m] is true."""
        kept_before = np.concatenate([[0], np.cumsum(keep)]).astype(np.int64)
        return self._select(np.flatnonzero(keep), kept_before[self.starts])

    def with_values(self, values: Bytes) -> "Cells":
        """The same cells with other values; cells with the value 0 are dropped.

        Scores and sources are dropped too, because they belong to the old values.
        """
        return Cells(self.starts, self.columns, values).where(values != 0)

    def dense(self, width: int) -> Bytes:
        """[n, width] the values, 0 for unknown."""
        matrix = np.zeros((len(self), width), dtype=np.int8)
        matrix[self.rows, self.columns] = self.values
        return matrix

    def tidy(self) -> "Cells":
        """The same content without cells, scores and sources that hold no information."""
        scores, sources = self.scores, self.sources
        has_score = None if scores is None else ~np.isnan(scores)
        informative = self.values != 0
        if has_score is not None:
            informative = informative | has_score
        if has_score is None or not has_score.any():
            scores = None
        if sources is not None:
            sources = np.where(self.values == 0, HUMAN, sources).astype(np.int8)
            sources = sources if sources.any() else None
        cells = Cells(self.starts, self.columns, self.values, scores, sources)
        return cells if informative.all() else cells.where(informative)

    def _select(self, positions: Rows, starts: Rows) -> "Cells":
        """The cells at these positions, as rows that begin at ``starts``."""
        return Cells(
            starts,
            np.asarray(self.columns)[positions],
            np.asarray(self.values)[positions],
            None if self.scores is None else np.asarray(self.scores)[positions],
            None if self.sources is None else np.asarray(self.sources)[positions],
        )


def from_triples(
    rows: NDArray[Any],
    columns: NDArray[Any],
    values: Bytes,
    shape: tuple[int, int],
    scores: Floats | None = None,
    sources: Bytes | None = None,
) -> Cells:
    """Cells from row, column and value of each, in any order.

    Raises:
        DuplicateCellError: a cell is given twice.
    """
    flat_index = rows.astype(np.int64) * shape[1] + columns
    if len(flat_index) > 1 and not (flat_index[1:] > flat_index[:-1]).all():
        order = np.argsort(flat_index)
        flat_index, columns, values = flat_index[order], columns[order], values[order]
        scores = None if scores is None else scores[order]
        sources = None if sources is None else sources[order]
        duplicates = np.flatnonzero(flat_index[1:] == flat_index[:-1])
        if len(duplicates):
            row, column = divmod(int(flat_index[duplicates[0]]), shape[1])
            raise DuplicateCellError(row, column)
    starts = np.searchsorted(flat_index, np.arange(shape[0] + 1) * shape[1])
    return Cells(starts.astype(np.int64), columns.astype(np.int32), values, scores, sources)


def from_matrix(matrix: Any) -> Cells:
    """Cells from a dense or scipy sparse matrix with values in {-1, 0, 1}.

    Raises:
        ValueError: the matrix holds another value.
        DuplicateCellError: a sparse matrix gives a cell twice.
    """
    if not sparse.issparse(matrix):
        return _from_dense(np.asarray(matrix))
    sparse_matrix: Any = matrix
    if sparse_matrix.format == "csr":
        return _from_csr(sparse_matrix)
    triples = sparse_matrix.tocoo()  # tocsr() would add up the values of a cell given twice
    return from_triples(triples.row, triples.col, _check_values(triples.data), triples.shape).tidy()


def _from_dense(matrix: NDArray[Any]) -> Cells:
    if matrix.ndim != 2:
        raise ValueError(
            f"a label matrix has two axes, images and classes; this one has {matrix.ndim}"
        )
    rows, columns = np.nonzero(matrix)
    return from_triples(rows, columns, _check_values(matrix[rows, columns]), matrix.shape)


def _from_csr(matrix: Any) -> Cells:
    starts = np.array(matrix.indptr, dtype=np.int64)
    columns = np.array(matrix.indices, dtype=np.int32)
    values = np.array(_check_values(matrix.data))
    if not _ascending(starts, columns).all():
        index = matrix.indptr.astype(np.int32) if len(columns) < 2**31 else starts
        ordered: Any = sparse.csr_array((values, columns, index), shape=matrix.shape)
        ordered.sort_indices()
        columns, values = ordered.indices.astype(np.int32, copy=False), ordered.data
        duplicates = np.flatnonzero(~_ascending(starts, columns))
        if len(duplicates):
            row = int(np.searchsorted(starts, duplicates[0], side="right")) - 1
            raise DuplicateCellError(row, int(columns[duplicates[0]]))
    return Cells(starts, columns, values).tidy()


def _ascending(starts: Rows, columns: NDArray[np.int32]) -> NDArray[np.bool_]:
    """[m - 1] whether the next cell has a higher column or begins a new row."""
    ascending = columns[1:] > columns[:-1]
    ascending[starts[(starts > 0) & (starts < len(columns))] - 1] = True
    return np.asarray(ascending)


def _check_values(values: NDArray[Any]) -> Bytes:
    valid = (values == 1) | (values == -1) | (values == 0)
    if not valid.all():
        raise ValueError(
            f"{values[~valid][0]} is not a label; a label matrix holds 1 (present), "
            "-1 (absent) and 0 (unknown)"
        )
    return values.astype(np.int8, copy=False)
