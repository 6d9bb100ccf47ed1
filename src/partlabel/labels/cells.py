"""The stored cells of a label table, row by row; all other cells are unknown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

HUMAN, MODEL = 0, 1
NOT_ASKED, RANDOM, CHOSEN, CONFIRMED = 0, 1, 2, 3

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
Codes = NDArray[np.uint8]


class DuplicateCellError(Exception):
    """A cell was given twice; holds its row and its column."""

    def __init__(self, row: int, column: int) -> None:
        super().__init__(row, column)
        self.row, self.column = row, column


@dataclass(frozen=True, eq=False)
class Details:
    """What may be known about each cell beside its value; None if no cell has such a property.

    Args:
        scores: [m] a model's estimate, NaN for a cell without score.
        sources: [m] who gave the label, HUMAN or MODEL.
        origins: [m] where the label comes from, such as a file or a team: 0 for not stated, else
            the position in ``LabelTable.origins``, counted from 1.
        asked: [m] whether the label answers a question: NOT_ASKED, RANDOM (about a cell drawn at
            random), CHOSEN (about a cell that a model chose), or CONFIRMED (it was there before a
            model asked about it, and a human confirmed it).
    """

    scores: Floats | None = None
    sources: Bytes | None = None
    origins: Codes | None = None
    asked: Bytes | None = None

    def columns(self) -> dict[str, NDArray[Any]]:
        """The properties that some cell has, by name."""
        columns = {name: getattr(self, name) for name in DEFAULTS}
        return {name: column for name, column in columns.items() if column is not None}

    def take(self, positions: NDArray[Any]) -> "Details":
        """The properties of the cells at these positions."""
        columns = self.columns().items()
        return Details(**{name: np.asarray(column)[positions] for name, column in columns})

    def filled(self, name: str, size: int) -> NDArray[Any]:
        """[m] one property of all ``size`` cells, the default if none is stored."""
        column: NDArray[Any] | None = getattr(self, name)
        return np.full(size, DEFAULTS[name]) if column is None else column

    def tidy(self, known: NDArray[np.bool_]) -> "Details":
        """The same content; only known cells have a source, an origin, or were asked for."""
        columns = self.columns()
        for name in columns.keys() - {"scores"}:
            columns[name] = np.where(known, columns[name], DEFAULTS[name])
        return Details(**{name: column for name, column in columns.items() if _used(column)})


DEFAULTS: dict[str, np.generic] = {
    "scores": np.float32(np.nan),
    "sources": np.int8(HUMAN),
    "origins": np.uint8(0),
    "asked": np.int8(NOT_ASKED),
}
"""The properties of a cell, and the value of each that stands for none."""


def _used(column: NDArray[Any]) -> bool:
    """Whether a column holds anything but its default."""
    return bool((~np.isnan(column)).any() if column.dtype.kind == "f" else column.any())


def concatenate(parts: Sequence[Details], sizes: Sequence[int]) -> Details:
    """The properties of the cells of several parts, one after the other."""
    names = [name for name in DEFAULTS if any(name in part.columns() for part in parts)]
    return Details(
        **{
            name: np.concatenate(
                [part.filled(name, size) for part, size in zip(parts, sizes, strict=True)]
            )
            for name in names
        }
    )


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
        details: scores, sources, origins, and whether labels were asked for.
    """

    starts: Rows
    columns: NDArray[np.int32]
    values: Bytes
    details: Details = Details()

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> Rows:
        """[m] the row of each cell."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @property
    def scores(self) -> Floats | None:
        """[m] the scores, or None if no cell has one."""
        return self.details.scores

    @property
    def sources(self) -> Bytes | None:
        """[m] the sources, or None if all labels are human."""
        return self.details.sources

    def equals(self, other: "Cells") -> bool:
        """Whether both hold the same cells with the same values and details."""
        same_values = all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("starts", "columns", "values")
        )
        return same_values and all(
            np.array_equal(self._filled(name), other._filled(name), equal_nan=True)
            for name in self.details.columns().keys() | other.details.columns().keys()
        )

    def scores_or_nan(self) -> Floats:
        """[m] the scores, NaN for a cell without score."""
        return self._filled("scores")

    def sources_or_human(self) -> Bytes:
        """[m] the sources, HUMAN for all cells if none are stored."""
        return self._filled("sources")

    def origins_or_none(self) -> Codes:
        """[m] the origins, 0 for a cell without origin."""
        return self._filled("origins")

    def asked_or_not(self) -> Bytes:
        """[m] whether each label was asked for, NOT_ASKED for all cells if that is not stored."""
        return self._filled("asked")

    def _filled(self, name: str) -> NDArray[Any]:
        return self.details.filled(name, len(self.values))

    def take(self, rows: Rows) -> "Cells":
        """The cells of these rows, in this order."""
        return self._select(*self.positions(rows))

    def positions(self, rows: Rows) -> tuple[Rows, Rows]:
        """Where the cells of these rows are, row by row, and where each row begins among them."""
        first = np.asarray(self.starts)[rows]
        lengths = np.asarray(self.starts)[rows + 1] - first
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return np.arange(starts[-1]) + np.repeat(first - starts[:-1], lengths), starts

    def where(self, keep: NDArray[np.bool_]) -> "Cells":
        """Only the cells for which ``keep`` [m] is true."""
        kept_before = np.concatenate([[0], np.cumsum(keep)]).astype(np.int64)
        return self._select(np.flatnonzero(keep), kept_before[self.starts])

    def with_values(self, values: Bytes) -> "Cells":
        """The same cells with other values; cells with the value 0 are dropped.

        Details are dropped too, because they belong to the old values.
        """
        return Cells(self.starts, self.columns, values).where(values != 0)

    def with_details(self, **columns: NDArray[Any] | None) -> "Cells":
        """The same cells with other details of these names."""
        return replace(self, details=replace(self.details, **columns))

    def dense(self, width: int) -> Bytes:
        """[n, width] the values, 0 for unknown."""
        matrix = np.zeros((len(self), width), dtype=np.int8)
        matrix[self.rows, self.columns] = self.values
        return matrix

    def tidy(self) -> "Cells":
        """The same content without cells and details that hold no information."""
        known = np.asarray(self.values != 0)
        cells = replace(self, details=self.details.tidy(known))
        informative = known if cells.scores is None else known | ~np.isnan(cells.scores)
        return cells if informative.all() else cells.where(informative)

    def _select(self, positions: Rows, starts: Rows) -> "Cells":
        """The cells at these positions, as rows that begin at ``starts``."""
        return Cells(
            starts,
            np.asarray(self.columns)[positions],
            np.asarray(self.values)[positions],
            self.details.take(positions),
        )


def stacked(parts: Sequence[Cells]) -> Cells:
    """The rows of several parts, one after the other."""
    sizes = [len(part.values) for part in parts]
    ends = np.cumsum([0, *sizes])
    starts = [part.starts[1:] + end for part, end in zip(parts, ends[:-1], strict=True)]
    return Cells(
        np.concatenate([[0], *starts]).astype(np.int64),
        np.concatenate([np.empty(0, dtype=np.int32), *(part.columns for part in parts)]),
        np.concatenate([np.empty(0, dtype=np.int8), *(part.values for part in parts)]),
        concatenate([part.details for part in parts], sizes),
    )


def from_triples(
    rows: NDArray[Any],
    columns: NDArray[Any],
    values: Bytes,
    shape: tuple[int, int],
    details: Details | None = None,
) -> Cells:
    """Cells from row, column and value of each, in any order.

    Raises:
        DuplicateCellError: a cell is given twice.
    """
    details = details or Details()
    flat_index = rows.astype(np.int64) * shape[1] + columns
    if len(flat_index) > 1 and not (flat_index[1:] > flat_index[:-1]).all():
        order = np.argsort(flat_index)
        flat_index, columns, values = flat_index[order], columns[order], values[order]
        details = details.take(order)
        duplicates = np.flatnonzero(flat_index[1:] == flat_index[:-1])
        if len(duplicates):
            row, column = divmod(int(flat_index[duplicates[0]]), shape[1])
            raise DuplicateCellError(row, column)
    starts = np.searchsorted(flat_index, np.arange(shape[0] + 1) * shape[1])
    return Cells(starts.astype(np.int64), columns.astype(np.int32), values, details)


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
