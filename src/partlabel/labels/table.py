"""The label table: images, classes, and for each pair present, absent, or nothing."""

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


class LabelTable:
    """What is known of which classes are in which images; unknown is what is not stored.

    Args:
        ids: a name per image, usually its file name; each once.
        classes: a name per class; each once.
        matrix: [n, C] array or scipy sparse matrix with values in {-1, 0, 1}: absent, unknown,
            present. Columns of a sparse row may come in any order; a cell given twice is an error.
        splits: a split name per image (``""`` for none), or None if the table has no splits.

    A table never changes: every operation gives a new one.

    >>> table = LabelTable(["a.jpg", "b.jpg"], ["cat", "dog"], [[1, 0], [-1, 1]])
    >>> table
    LabelTable(2 images x 2 classes, 75.0% known)
    >>> table.dense([1]).tolist()
    [[-1, 1]]
    >>> table.counts().present.tolist()
    [1, 1]
    """

    __hash__ = None  # type: ignore[assignment]  # compares by content

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
        except _cells.DuplicateCellError as twice:
            image, name = ids[twice.row], classes[twice.column]
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
        *,
        check: bool = True,
    ) -> "LabelTable":
        """A table over cells that may also have scores and sources.

        With ``check=False`` names and cells are taken as they are, and nothing is read.
        """
        table = cls.__new__(cls)
        cells = cells.tidy() if check else cells
        names = None if splits is None else Names(splits)
        table._set(Names(ids), Names(classes), cells, names, check=check)
        return table

    def _set(
        self, ids: Names, classes: Names, cells: Cells, splits: Names | None, *, check: bool
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
        self.ids, self.classes, self.cells = ids, classes, cells
        self.splits = None if splits is None else _coded(splits)
        self.conflicts = 0
        """Cells on which the tables disagreed in the merge that made this one."""
        self.split_conflicts = 0
        """Images that those tables put in different splits."""

    def __repr__(self) -> str:
        size = f"{count(len(self.ids), 'image')} x {count(len(self.classes), 'class', 'classes')}"
        return f"LabelTable({size}, {self.known:.1%} known)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelTable):
            return NotImplemented
        splits = list(self.splits or []) == list(other.splits or [])
        return (
            self.ids == other.ids
            and self.classes == other.classes
            and splits
            and self.cells.equals(other.cells)
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of images, number of classes."""
        return len(self.ids), len(self.classes)

    @property
    def known(self) -> float:
        """Share of all cells that are known to be present or absent."""
        size = len(self.ids) * len(self.classes)
        return float(np.count_nonzero(self.cells.values)) / size if size else 0.0

    @property
    def matrix(self) -> sparse.csr_array:
        """[n, C] the known labels as a scipy sparse matrix."""
        known = self.cells.where(self.cells.values != 0)
        return sparse.csr_array((known.values, known.columns, known.starts), shape=self.shape)

    def dense(self, rows: ArrayLike | None = None) -> NDArray[np.int8]:
        """[n, C] labels of these rows (all by default), 0 for unknown."""
        cells = self.cells if rows is None else self.cells.take(self._rows(rows))
        return cells.dense(len(self.classes))

    def scores(self, rows: ArrayLike | None = None) -> NDArray[np.float32]:
        """[n, C] machine scores of these rows (all by default), NaN where there is none."""
        cells = self.cells if rows is None else self.cells.take(self._rows(rows))
        out = np.full((len(cells), len(self.classes)), np.nan, dtype=np.float32)
        out[cells.rows, cells.columns] = cells.scores_or_nan()
        return out

    def counts(self) -> Any:
        """Known labels per class: a record array [C] with fields present, absent and unknown."""
        size = len(self.classes)
        values, columns = self.cells.values, self.cells.columns
        present = np.bincount(columns[values == PRESENT], minlength=size)
        absent = np.bincount(columns[values == ABSENT], minlength=size)
        unknown = len(self.ids) - present - absent
        kind = [(name, np.int64) for name in ("present", "absent", "unknown")]
        return np.rec.fromarrays([present, absent, unknown], dtype=kind)

    def subset(self, rows: ArrayLike) -> "LabelTable":
        """These images, in this order; ``rows`` are positions or a mask."""
        at = self._rows(rows)
        splits = None if self.splits is None else self.splits.take(at)
        ids = self.ids.take(at)
        if len(np.unique(at)) < len(at):
            check_names("image", ids)
        cells = self.cells.take(at).tidy()
        return LabelTable.from_cells(ids, self.classes, cells, splits, check=False)

    def split(self, name: str) -> "LabelTable":
        """The images of this split."""
        return self.subset(self.in_split(name))

    def in_split(self, name: str) -> NDArray[np.bool_]:
        """[n] whether each image is in this split."""
        if self.splits is None:
            raise InputError(f"there is no split '{name}': the table has no splits")
        codes, names = self.splits.array.indices, self.splits.array.dictionary.to_pylist()
        used = [names[code] for code in codes.unique().to_pylist()]
        one_of("split", name, [n for n in used if n])
        return np.asarray(codes.to_numpy() == names.index(name))

    def with_splits(self, splits: Iterable[str] | None) -> "LabelTable":
        """The same labels with other splits."""
        return LabelTable.from_cells(self.ids, self.classes, self.cells, splits)

    def with_classes(self, names: Iterable[str]) -> "LabelTable":
        """The same images with these of the classes, in this order."""
        wanted = Names(names)
        for name in wanted:
            one_of("class", name, self.classes)
        to_new = np.full(len(self.classes), -1, dtype=np.int64)
        to_new[self.classes.find(wanted)] = np.arange(len(wanted))
        column = to_new[self.cells.columns]
        kept = self.cells.where(column >= 0)
        cells = _cells.from_triples(
            kept.rows,
            column[column >= 0],
            kept.values,
            (len(self.ids), len(wanted)),
            kept.scores,
            kept.sources,
        )
        return LabelTable.from_cells(self.ids, wanted, cells, self.splits)

    def with_more_classes(self, names: Iterable[str]) -> "LabelTable":
        """The same table with these classes too, unknown in all images."""
        classes = [*self.classes, *names]
        return LabelTable.from_cells(self.ids, classes, self.cells, self.splits)

    def with_cells(self, cells: Cells) -> "LabelTable":
        """The same images, classes and splits with other cells."""
        return LabelTable.from_cells(self.ids, self.classes, cells, self.splits, check=False)

    def merge(self, other: "LabelTable", conflict: Conflict = "error") -> "LabelTable":
        """Both tables as one, over the images and the classes of either.

        Args:
            other: a table with any images and classes; its new ones come after ours.
            conflict: what a cell becomes that is present in one and absent in the other (and the
                split of an image that the tables put in different ones): ``"error"`` raises,
                ``"unknown"`` forgets both, ``"ours"`` and ``"theirs"`` take one side.

        The result's ``conflicts`` is the number of cells that were decided this way, and
        ``split_conflicts`` that of images whose split was.

        >>> ours = LabelTable(["a"], ["cat"], [[1]])
        >>> both = ours.merge(LabelTable(["a", "b"], ["cat", "dog"], [[-1, 1], [0, 1]]), "theirs")
        >>> both.dense().tolist(), both.conflicts
        ([[-1, 1], [0, 1]], 1)
        """
        from partlabel.labels.merge import merge

        return merge([self, other], conflict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to one Arrow file, which :meth:`open` maps into memory."""
        from partlabel.labels.storage import save

        save(self, path)

    @staticmethod
    def open(path: str | os.PathLike[str]) -> "LabelTable":
        """Open a saved table; its labels are read from disk when they are asked for."""
        from partlabel.labels.storage import load

        return load(path)

    def _rows(self, rows: ArrayLike) -> NDArray[np.int64]:
        at = np.asarray(rows)
        if at.dtype.kind in "US":
            raise InputError("rows are positions or a mask; table.ids.find(names) gives positions")
        if at.dtype == np.bool_ and len(at) != len(self.ids):
            raise InputError(f"a mask of {len(at)} for {count(len(self.ids), 'image')}")
        if at.dtype == np.bool_:
            return np.flatnonzero(at)
        at = at.astype(np.int64).reshape(-1)
        if len(at) and (at.min() < -len(self.ids) or at.max() >= len(self.ids)):
            raise IndexError(f"row {at.max()} of a table of {count(len(self.ids), 'image')}")
        return np.where(at < 0, at + len(self.ids), at)


def _coded(splits: Names) -> Names:
    if pa.types.is_dictionary(splits.array.type):
        return splits
    return Names(pc.dictionary_encode(splits.plain()))
