"""The label table: for each image and class, whether it is present, absent or unknown."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from partlabel.base.errors import InputError, count, one_of
from partlabel.labels import cells as _cells
from partlabel.labels.cells import Cells
from partlabel.labels.combine import Conflict
from partlabel.labels.names import Names, check_names

PRESENT, ABSENT, UNKNOWN = 1, -1, 0
MOST_ORIGINS = 255  # a cell has one byte for its origin, and 0 stands for none
TOO_MANY_ORIGINS = (
    f"a table can have labels of {MOST_ORIGINS} origins, and there are more; give several files "
    "the same origin (FILE:origin=NAME)"
)
NO_NAMES = Names([])


class LabelTable:
    """Which classes are known to be present in which images, and which are known to be absent.

    Args:
        ids: a unique name per image, usually its file name.
        classes: a unique name per class.
        matrix: [n, C] array or scipy sparse matrix with values 1 (present), -1 (absent) and 0
            (unknown). In a sparse matrix, the columns of a row may come in any order, and a cell
            given twice is an error.
        splits: a split name per image (``""`` for none), or None if the table has no splits.

    Attributes:
        ids, classes, splits: as given.
        origins: the names of the places that labels come from, such as files or teams; at most
            255.
        cells: the stored cells; ``cells.details`` has the score, source and origin of each, and
            whether it was asked for.

    A table never changes: every operation returns a new one.

    >>> table = LabelTable(["a.jpg", "b.jpg"], ["cat", "dog"], [[1, 0], [-1, 1]])
    >>> table
    LabelTable(2 images x 2 classes, 75.0% known)
    >>> table.dense([1]).tolist()
    [[-1, 1]]
    >>> table.counts().present.tolist()
    [1, 1]
    """

    __hash__ = None  # type: ignore[assignment]  # equality is by content

    def __init__(
        self,
        ids: Iterable[str],
        classes: Iterable[str],
        matrix: ArrayLike | sparse.sparray | sparse.spmatrix,
        splits: Iterable[str] | None = None,
    ) -> None:
        ids, classes = Names(ids), Names(classes)
        shape = np.shape(matrix)  # type: ignore[arg-type]  # sparse matrices have a shape too
        if shape == (0,) and not len(ids):  # [] is how an empty matrix is written
            matrix = np.zeros((0, len(classes)), dtype=np.int8)
        elif shape != (len(ids), len(classes)):
            raise InputError(
                f"the matrix is {' x '.join(map(str, shape))}, but there are "
                f"{count(len(ids), 'id')} and {count(len(classes), 'class', 'classes')}"
            )
        try:
            cells = _cells.from_matrix(matrix)
        except _cells.DuplicateCellError as error:
            image, name = ids[error.row], classes[error.column]
            raise InputError(f"image '{image}', class '{name}': the cell is given twice") from None
        except ValueError as error:
            raise InputError(str(error)) from None
        self._set(ids, classes, cells, None if splits is None else Names(splits), check=True)

    @classmethod
    def from_cells(
        cls,
        ids: Iterable[str],
        classes: Iterable[str],
        cells: Cells,
        splits: Iterable[str] | None = None,
        origins: Iterable[str] = (),
        *,
        check: bool = True,
    ) -> "LabelTable":
        """A table of cells, which may have details such as scores and origins.

        With ``check=False`` names and cells are not checked, and so not read from disk.
        """
        table = cls.__new__(cls)
        cells = cells.tidy() if check else cells
        names = None if splits is None else Names(splits)
        table._set(Names(ids), Names(classes), cells, names, Names(origins), check=check)
        return table

    def _set(
        self,
        ids: Names,
        classes: Names,
        cells: Cells,
        splits: Names | None,
        origins: Names = NO_NAMES,
        *,
        check: bool,
    ) -> None:
        if check:
            check_names("image", ids)
            check_names("class", classes)
            padded = [name for name in classes if name != name.strip()]
            if padded:
                raise InputError(f"the class name {padded[0]!r} starts or ends with a space")
            if splits is not None and len(splits) != len(ids):
                raise InputError(f"{len(splits)} split names for {count(len(ids), 'image')}")
            if splits is not None:
                used = [name for name in splits.array.unique().to_pylist() if name]
                check_names("split", Names(used))
                splits = splits if used else None
            check_origins(origins, cells)
        self.ids, self.classes, self.cells = ids, classes, cells
        self.origins = origins if cells.details.origins is not None else NO_NAMES
        self.splits = None if splits is None else _dictionary_encoded(splits)
        self.conflicts = 0
        """Number of labels on which tables disagreed, if this table is the result of a merge."""
        self.split_conflicts = 0
        """Number of images whose split the merged tables disagreed on."""

    def __repr__(self) -> str:
        size = f"{count(len(self.ids), 'image')} x {count(len(self.classes), 'class', 'classes')}"
        return f"LabelTable({size}, {self.known:.1%} known)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelTable):
            return NotImplemented
        same_splits = list(self.splits or []) == list(other.splits or [])
        return (
            self.ids == other.ids
            and self.classes == other.classes
            and same_splits
            and self._cells_equal(other)
        )

    def _cells_equal(self, other: "LabelTable") -> bool:
        """Whether the cells are equal; the order of the names of origins does not matter."""
        if self.origins == other.origins:
            return self.cells.equals(other.cells)
        position = self.origins.find(other.origins)
        used = np.unique(other.cells.origins_or_none())
        if (position[used[used > 0] - 1] < 0).any():
            return False
        codes = np.concatenate([[0], position + 1]).astype(np.uint8)
        recoded = codes[other.cells.origins_or_none()]
        return self.cells.equals(other.cells.with_details(origins=recoded))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of images, number of classes."""
        return len(self.ids), len(self.classes)

    @property
    def known(self) -> float:
        """Share of all labels that are known, present or absent."""
        size = len(self.ids) * len(self.classes)
        return float(np.count_nonzero(self.cells.values)) / size if size else 0.0

    @property
    def matrix(self) -> sparse.csr_array:
        """[n, C] the known labels as a scipy sparse matrix."""
        known = self.cells.where(self.cells.values != 0)
        return sparse.csr_array((known.values, known.columns, known.starts), shape=self.shape)

    def dense(self, rows: ArrayLike | None = None) -> NDArray[np.int8]:
        """[n, C] labels of these rows (default: all), 0 for unknown."""
        cells = self.cells if rows is None else self.cells.take(self._rows(rows))
        return cells.dense(len(self.classes))

    def scores(self, rows: ArrayLike | None = None) -> NDArray[np.float32]:
        """[n, C] model scores of these rows (default: all), NaN for a cell without score."""
        cells = self.cells if rows is None else self.cells.take(self._rows(rows))
        matrix = np.full((len(cells), len(self.classes)), np.nan, dtype=np.float32)
        matrix[cells.rows, cells.columns] = cells.scores_or_nan()
        return matrix

    def counts(self) -> Any:
        """Labels per class: a record array [C] with the fields present, absent and unknown."""
        size = len(self.classes)
        values, columns = self.cells.values, self.cells.columns
        present = np.bincount(columns[values == PRESENT], minlength=size)
        absent = np.bincount(columns[values == ABSENT], minlength=size)
        unknown = len(self.ids) - present - absent
        fields = [(name, np.int64) for name in ("present", "absent", "unknown")]
        return np.rec.fromarrays([present, absent, unknown], dtype=fields)

    def subset(self, rows: ArrayLike) -> "LabelTable":
        """The table of these images, in this order; ``rows`` are positions or a mask."""
        positions = self._rows(rows)
        splits = None if self.splits is None else self.splits.take(positions)
        ids = self.ids.take(positions)
        if np.bincount(positions).max(initial=0) > 1:
            check_names("image", ids)
        cells = self.cells.take(positions).tidy()
        return LabelTable.from_cells(ids, self.classes, cells, splits, self.origins, check=False)

    def split(self, name: str) -> "LabelTable":
        """The table of the images of this split."""
        return self.subset(self.in_split(name))

    def in_split(self, name: str) -> NDArray[np.bool_]:
        """[n] whether each image is in this split."""
        if self.splits is None:
            raise InputError(f"there is no split '{name}': the table has no splits")
        one_of("split", name, self.split_names)
        names = self.splits.array.dictionary.to_pylist()
        return np.asarray(self.splits.array.indices.to_numpy() == names.index(name))

    @property
    def split_names(self) -> list[str]:
        """The splits that have images."""
        if self.splits is None:
            return []
        codes, names = self.splits.array.indices, self.splits.array.dictionary.to_pylist()
        return [names[code] for code in codes.unique().to_pylist() if names[code]]

    def with_splits(self, splits: Iterable[str] | None) -> "LabelTable":
        """The same labels with other splits."""
        return LabelTable.from_cells(self.ids, self.classes, self.cells, splits, self.origins)

    def with_origin(self, name: str) -> "LabelTable":
        """The same table, with this origin for all known labels that have none.

        >>> table = LabelTable(["a"], ["cat"], [[1]]).with_origin("north")
        >>> table.origins, table.cells.origins_or_none().tolist()
        (Names(['north']), [1])
        """
        cells, origins = self.cells, list(self.origins)
        codes = cells.origins_or_none()
        missing = (codes == 0) & (cells.values != 0)
        if not missing.any():
            return self
        origins += [] if name in origins else [name]
        if len(origins) > MOST_ORIGINS:
            raise InputError(TOO_MANY_ORIGINS)
        codes = np.where(missing, origins.index(name) + 1, codes).astype(np.uint8)
        cells = cells.with_details(origins=codes)
        return LabelTable.from_cells(self.ids, self.classes, cells, self.splits, origins)

    def without_origins(self) -> "LabelTable":
        """The same table without the origins of its labels."""
        return self.with_cells(self.cells.with_details(origins=None))

    def with_classes(self, names: Iterable[str]) -> "LabelTable":
        """The same images with only these classes, in this order."""
        wanted = Names(names)
        for name in self.classes.missing(wanted):
            one_of("class", name, self.classes)
        new_column = np.full(len(self.classes), -1, dtype=np.int64)
        new_column[self.classes.find(wanted)] = np.arange(len(wanted))
        columns = new_column[self.cells.columns]
        kept = self.cells.where(columns >= 0)
        cells = _cells.from_triples(
            kept.rows,
            columns[columns >= 0],
            kept.values,
            (len(self.ids), len(wanted)),
            kept.details,
        )
        return LabelTable.from_cells(self.ids, wanted, cells, self.splits, self.origins)

    def with_more_classes(self, names: Iterable[str]) -> "LabelTable":
        """The same table with these classes added, unknown in all images."""
        classes = [*self.classes, *names]
        return LabelTable.from_cells(self.ids, classes, self.cells, self.splits, self.origins)

    def with_cells(self, cells: Cells) -> "LabelTable":
        """The same images, classes, splits and names of origins with other cells."""
        return LabelTable.from_cells(
            self.ids, self.classes, cells, self.splits, self.origins, check=False
        )

    def merge(self, other: "LabelTable", conflict: Conflict = "error") -> "LabelTable":
        """Merge two tables; the result has the images and the classes of both.

        Args:
            other: a table with any images and classes; its new ones come after those of this one.
            conflict: what to do if a label is present in one table and absent in the other, or if
                the tables put an image in different splits. ``"error"`` raises an error,
                ``"unknown"`` drops both, ``"ours"`` keeps this table's, ``"theirs"`` the other's.

        The result has the number of labels in conflict as ``conflicts``, and the number of images
        whose split was in conflict as ``split_conflicts``.

        >>> ours = LabelTable(["a"], ["cat"], [[1]])
        >>> both = ours.merge(LabelTable(["a", "b"], ["cat", "dog"], [[-1, 1], [0, 1]]), "theirs")
        >>> both.dense().tolist(), both.conflicts
        ([[-1, 1], [0, 1]], 1)
        """
        from partlabel.labels.merge import merge

        return merge([self, other], conflict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to one Arrow file, for :meth:`open`."""
        from partlabel.labels.storage import save

        save(self, path)

    @staticmethod
    def open(path: str | os.PathLike[str]) -> "LabelTable":
        """Open a saved table; it is memory-mapped, so labels are read from disk when needed."""
        from partlabel.labels.storage import load

        return load(path)

    def _rows(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Positions, given positions (negative ones count from the end) or a mask."""
        size = len(self.ids)
        selected = np.asarray(rows)
        if selected.dtype.kind in "US":
            raise InputError(
                "rows must be positions or a mask, not names; table.ids.find(names) gives positions"
            )
        if selected.dtype == np.bool_ and len(selected) != size:
            raise InputError(f"a mask of length {len(selected)} for {count(size, 'image')}")
        if selected.dtype == np.bool_:
            return np.flatnonzero(selected)
        positions = selected.astype(np.int64).reshape(-1)
        outside = positions[(positions < -size) | (positions >= size)]
        if len(outside):
            raise IndexError(f"row {outside[0]} of a table of {count(size, 'image')}")
        return np.where(positions < 0, positions + size, positions)


def check_origins(origins: Names, cells: Cells) -> None:
    """Raise an error for names of origins that are invalid, too many, or fewer than the cells'."""
    check_names("origin", origins)
    if len(origins) > MOST_ORIGINS:
        raise InputError(TOO_MANY_ORIGINS)
    codes = cells.details.origins
    if codes is not None and len(codes) and int(codes.max()) > len(origins):
        raise InputError(f"a label has origin {int(codes.max())} of {len(origins)}")


def _dictionary_encoded(splits: Names) -> Names:
    if pa.types.is_dictionary(splits.array.type):
        return splits
    return Names(pc.dictionary_encode(splits.plain()))
