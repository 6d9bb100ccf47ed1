"""Files of vectors, one per image: embeddings that any model has computed, of anything.

.npy, .safetensors and .arrow files are memory-mapped, .npz and .parquet files are read when the
first vector is needed. Opening a file reads its header only, and nothing is ever unpickled.
"""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from torch import Tensor

from partlabel.base.errors import FileError, InputError, count, one_of, some
from partlabel.images.batches import Rows
from partlabel.images.matching import FileNames
from partlabel.labels.formats.delimited import read_delimited
from partlabel.labels.formats.parquet import read_parquet
from partlabel.labels.formats.source import Source
from partlabel.labels.names import Names, check_names
from partlabel.models.features.vector_formats import ID_NAMES, OPENERS, Part, readable

IDS_SUFFIX = ".ids.txt"
"""What the name of an .npy file gets for the text file with its ids."""

_BLOCK = 1 << 20  # bytes that are hashed at each of several places
_CHECKED = 4096  # vectors that are checked at a time


class VectorFile:
    """A file of vectors with the ids of the images that they belong to.

    Args:
        path: an .npy, .npz, .safetensors, .parquet or .arrow file.
        ids: a file with the id of each vector: text with one id per line, or a CSV or Parquet table
            with a column such as ``image``. None if the ids are in the file of the vectors, or
            beside it in ``PATH.ids.txt``.
    """

    def __init__(self, path: Path, ids: Path | None = None) -> None:
        self.path, self.ids_path = path, ids
        if not path.is_file():
            problem = "is a folder, not a file of features" if path.is_dir() else "no such file"
            raise FileError(path, problem)
        kind = path.suffix.lower()
        if kind not in OPENERS:
            raise FileError(path, f"features are read from {', '.join(OPENERS)} files")
        with readable(path):
            self._contents = OPENERS[kind](path)
        beside = path.with_name(path.name + IDS_SUFFIX)
        if ids is None and self._contents.ids is None:
            if not beside.is_file():
                raise FileError(
                    path, f"has no ids; name a file with one id per vector with --feature-ids, or "
                    f"write them to {beside.name}"
                )  # fmt: skip
            self.ids_path = beside
        if 0 in self._contents.shape:
            raise FileError(path, f"holds no vectors (its shape is {list(self._contents.shape)})")

    def __len__(self) -> int:
        return self._contents.shape[0]

    @property
    def dimension(self) -> int:
        """D, the numbers in a vector."""
        return self._contents.shape[1]

    @cached_property
    def ids(self) -> Names:
        """[n] the names of the images."""
        if self.ids_path is not None:
            path, ids = self.ids_path, _read_ids(self.ids_path)
        else:
            assert self._contents.ids is not None
            path = self.path
            with readable(path):
                ids = _as_names(self._contents.ids())
        try:
            check_names("image", ids)
        except InputError as error:
            raise FileError(path, str(error)) from None
        if len(ids) != len(self):
            raise FileError(
                path, f"{count(len(ids), 'id')} for {count(len(self), 'vector')} in {self.path}"
            )
        return ids

    def locate(self, names: Names) -> Rows:
        """The row of each image; an image without a vector is an error.

        As for image files, an id is also found without its suffix or its folder, if it is unique.
        """
        rows = self.ids.find(names)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            rows[missing] = self._find_similar(list(names.take(missing)))
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            raise FileError(
                self.path,
                f"{len(missing):,} of {count(len(names), 'image')} have no features: "
                f"{some(names.take(missing))}. The ids of the features look like "
                f"{some([self.ids[0]])}; they must be those of the labels",
            )
        return rows

    def _find_similar(self, names: list[str]) -> Rows:
        """The row of each name that is spelled in another way, -1 if none is alike."""
        files = FileNames(list(self.ids), "")
        shorter = [name.rsplit(".", 1)[0] for name in names]  # ids may have no suffix
        matches = [a or b for a, b in zip(files.match(names), files.match(shorter), strict=True)]
        return self.ids.find(["" if match is None else match.file for match in matches])

    @cached_property
    def _parts(self) -> tuple[list[Part], Rows]:
        """The vectors in parts, and the first row of each."""
        with readable(self.path):
            parts = self._contents.load()
        return parts, np.cumsum([0, *(len(part) for part in parts)])[:-1]

    def read(self, rows: Rows) -> Tensor:
        """The vectors [b, D] of rows, in single precision; one that is not finite is an error."""
        vectors = self._read(rows)
        # the sum of many is infinite if one is; it takes a fraction of the time of looking at each
        finite = torch.isfinite(vectors.sum())[None]
        if not finite:
            finite = torch.isfinite(vectors).all(dim=1)
        if not finite.all():
            row = int(rows[int(finite.int().argmin())])
            value = next(v for v in self.read_raw(row).tolist() if not np.isfinite(v))
            raise FileError(
                self.path,
                f"a feature is {value}; remove this image from the labels, or compute its features "
                "again",
                f"row {row:,} ('{self.ids[row]}')",
            )
        return vectors

    def _read(self, rows: Rows) -> Tensor:
        parts, starts = self._parts
        if len(parts) == 1:
            return torch.as_tensor(parts[0][rows]).float()
        vectors = torch.empty((len(rows), self.dimension))
        part_of_row = np.searchsorted(starts, rows, side="right") - 1
        for number in np.unique(part_of_row):
            own = part_of_row == number
            values = torch.as_tensor(parts[number][rows[own] - starts[number]])
            vectors[torch.from_numpy(own)] = values.float()
        return vectors

    def read_raw(self, row: int) -> Tensor:
        """One vector [D], whatever its values are."""
        parts, starts = self._parts
        number = int(np.searchsorted(starts, row, side="right")) - 1
        return torch.as_tensor(parts[number][[row - int(starts[number])]])[0].float()

    def check(self, rows: Rows) -> None:
        """Read these vectors once, so that one that is not finite is an error now."""
        for start in range(0, len(rows), _CHECKED):
            self.read(rows[start : start + _CHECKED])

    def digest(self) -> str:
        """A hash of the size and of parts of the file: fast, and the same for a copy."""
        size = self.path.stat().st_size
        digest = hashlib.blake2b(f"{size}".encode(), digest_size=16)
        with self.path.open("rb") as stream:
            for position in np.linspace(0, max(size - _BLOCK, 0), 9).astype(np.int64).tolist():
                stream.seek(position)
                digest.update(stream.read(_BLOCK))
        return digest.hexdigest()


def _as_names(values: Any) -> Names:
    """Ids of any type as text."""
    if isinstance(values, pa.ChunkedArray):
        return Names(values.cast(pa.large_string()))
    array = np.asarray(values)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return Names(array.astype(str).tolist())


def _read_ids(path: Path) -> Names:
    """The ids in a file: one per line, or a column of a table."""
    source = Source(path)
    if source.kind == "parquet":
        table = read_parquet(source)
    elif path.suffix.lower() in (".csv", ".tsv"):
        table = read_delimited(source)
    elif source.kind == "text":
        text = path.read_text(encoding=source.text.encoding)
        return Names(text.removesuffix("\n").split("\n"))
    else:
        raise FileError(path, "ids are read from a text file with one per line, or a CSV table")
    names = [name for name in ID_NAMES if name in table.header]
    if not names:
        one_of("column of ids", table.header[0] if table.header else "", ID_NAMES)
    column = table.columns[table.column(names[0])]
    return Names(column.cast(pa.string()))
