"""Files of vectors, one per image: embeddings that any model has computed, of anything.

.npy, .safetensors and .arrow files are memory-mapped, .npz and .parquet files are read when the
first vector is needed. Opening a file reads its header only, and nothing is ever unpickled.
"""

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from partlabel.base.errors import FileError, InputError, count, one_of, some
from partlabel.images.batches import Rows
from partlabel.images.matching import FileNames
from partlabel.labels.formats.delimited import read_delimited
from partlabel.labels.formats.parquet import read_parquet
from partlabel.labels.formats.source import Source
from partlabel.labels.names import Names, check_names

Part = NDArray[Any] | Tensor  # [rows, D], possibly mapped from a file

FEATURE_NAMES = ("features", "embeddings", "vectors", "x", "X")
ID_NAMES = ("image", "id", "ids", "name", "names", "filename", "file_name", "file", "path")
IDS_SUFFIX = ".ids.txt"
"""What the name of an .npy file gets for the text file with its ids."""

_BLOCK = 1 << 20  # bytes that are hashed at each of several places
_CHECKED = 4096  # vectors that are checked at a time


@dataclass(frozen=True)
class Contents:
    """What a file holds.

    Args:
        shape: (n, D) the numbers of vectors and of dimensions.
        load: gives the vectors in parts, one after another.
        ids: gives the names that are in the file itself; None without names.
    """

    shape: tuple[int, int]
    load: Callable[[], list[Part]]
    ids: Callable[[], Any] | None = None


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
        if kind not in _OPEN:
            raise FileError(path, f"features are read from {', '.join(_OPEN)} files")
        with _readable(path):
            self._contents = _OPEN[kind](path)
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
            with _readable(path):
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
        with _readable(self.path):
            parts = self._contents.load()
        return parts, np.cumsum([0, *(len(part) for part in parts)])[:-1]

    def read(self, rows: Rows) -> Tensor:
        """The vectors [b, D] of rows, in single precision; one that is not finite is an error."""
        parts, starts = self._parts
        vectors = torch.empty((len(rows), self.dimension))
        part_of_row = np.searchsorted(starts, rows, side="right") - 1
        for number in np.unique(part_of_row):
            own = part_of_row == number
            values = torch.as_tensor(parts[number][rows[own] - starts[number]])
            vectors[torch.from_numpy(own)] = values.float()
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
            for place in np.linspace(0, max(size - _BLOCK, 0), 9).astype(np.int64).tolist():
                stream.seek(place)
                digest.update(stream.read(_BLOCK))
        return digest.hexdigest()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the errors of the libraries that read files into one that names the file."""
    try:
        yield
    except InputError:
        raise
    except (
        OSError, ValueError, TypeError, KeyError, EOFError, SafetensorError, pa.ArrowException,
        zipfile.BadZipFile,
    ) as error:  # fmt: skip
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(path, f"cannot be read ({text})") from error


# -- the formats -----------------------------------------------------------------------------------


def _open_npy(path: Path) -> Contents:
    vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    return Contents(_checked(path, vectors.shape, vectors.dtype), lambda: [vectors])


def _open_npz(path: Path) -> Contents:
    with zipfile.ZipFile(path) as archive:
        headers = {
            entry.removesuffix(".npy"): _npy_header(archive, entry)
            for entry in archive.namelist()
            if entry.endswith(".npy")
        }
    wide = [name for name, (shape, _) in headers.items() if len(shape) == 2]
    name = _choose(path, "array of features", FEATURE_NAMES, wide)
    texts = [name for name, (shape, kind) in headers.items() if len(shape) == 1 and _is_id(kind)]
    ids = next((known for known in ID_NAMES if known in texts), texts[0] if texts else None)

    def load(array: str) -> NDArray[Any]:
        with np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays[array])

    shape = _checked(path, *headers[name])
    return Contents(shape, lambda: [load(name)], None if ids is None else lambda: load(ids))


def _npy_header(archive: zipfile.ZipFile, entry: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array in an .npz file, without reading the array."""
    with archive.open(entry) as stream:
        version, formats = np.lib.format.read_magic(stream), np.lib.format
        is_first = version == (1, 0)
        read = formats.read_array_header_1_0 if is_first else formats.read_array_header_2_0
        shape, _, dtype = read(stream)
        return shape, dtype


def _is_id(kind: np.dtype[Any]) -> bool:
    return kind.kind in "USiu"


def _open_safetensors(path: Path) -> Contents:
    with safe_open(path, framework="pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata() or {}
        wide = [name for name, shape in shapes.items() if len(shape) == 2]
        name = _choose(path, "tensor of features", FEATURE_NAMES, wide)
        vectors = file.get_tensor(name)  # mapped, not read
    if vectors.dtype.is_complex:
        raise FileError(path, f"'{name}' holds {vectors.dtype}, not real numbers")
    rows, columns = vectors.shape
    text = metadata.get("ids")
    ids = None if text is None else lambda: json.loads(text)
    return Contents((rows, columns), lambda: [vectors], ids)


def _open_arrow(path: Path) -> Contents:
    with pa.memory_map(str(path)) as stream:
        table = pa.ipc.open_file(stream).read_all()
    column = _list_column(path, table.schema)
    width = _width(table.schema.field(column).type, lambda: table.column(column))

    def load() -> list[Part]:
        return [_flat(path, chunk, width) for chunk in table.column(column).chunks if len(chunk)]

    ids = _id_column(table.schema)
    return Contents(
        (len(table), width), load, None if ids is None else lambda: table.column(ids)
    )  # fmt: skip


def _open_parquet(path: Path) -> Contents:
    file = pyarrow.parquet.ParquetFile(path, memory_map=True)
    schema, rows = file.schema_arrow, file.metadata.num_rows
    column = _list_column(path, schema)
    width = _width(
        schema.field(column).type,
        lambda: next(file.iter_batches(1, columns=[column])).column(0) if rows else [],
    )

    def load() -> list[Part]:
        chunks = pyarrow.parquet.read_table(path, columns=[column]).column(0).chunks
        return [_flat(path, chunk, width) for chunk in chunks if len(chunk)]

    ids = _id_column(schema)
    read = None if ids is None else lambda: pyarrow.parquet.read_table(path, columns=[ids])[ids]
    return Contents((rows, width), load, read)


_OPEN: dict[str, Callable[[Path], Contents]] = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".safetensors": _open_safetensors,
    ".parquet": _open_parquet,
    ".arrow": _open_arrow,
}
SUFFIXES = tuple(_OPEN)


def _checked(path: Path, shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[int, int]:
    """The shape of an array, which must be numbers [n, D]."""
    if len(shape) != 2 or dtype.kind not in "fiu":
        raise FileError(
            path, f"holds {dtype} of shape {list(shape)}; features are numbers [images, dimensions]"
        )
    return int(shape[0]), int(shape[1])


def _choose(path: Path, what: str, known: tuple[str, ...], names: list[str]) -> str:
    """The one of the names that is meant: the only one, or one with a known name."""
    if len(names) == 1:
        return names[0]
    for name in known:
        if name in names:
            return name
    raise FileError(
        path,
        f"holds no {what} [images, dimensions]"
        if not names
        else f"which {what} is meant: {some(names)}? Call it '{known[0]}'",
    )


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(
        is_list and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type))
    )


def _list_column(path: Path, schema: pa.Schema) -> str:
    return _choose(
        path,
        "column of lists of numbers",
        FEATURE_NAMES,
        [field.name for field in schema if _is_list(field.type)],
    )


def _id_column(schema: pa.Schema) -> str | None:
    types = pa.types
    texts = [
        field.name
        for field in schema
        if types.is_string(field.type)
        or types.is_large_string(field.type)
        or (types.is_integer(field.type) and field.name in ID_NAMES)
    ]
    return next((name for name in ID_NAMES if name in texts), texts[0] if texts else None)


def _width(kind: pa.DataType, column: Callable[[], Any]) -> int:
    """The length of the lists of a column, or of its first list if the type does not say."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    values = column()
    return len(values[0]) if len(values) and values[0].is_valid else 0


def _flat(path: Path, lists: pa.Array, width: int) -> NDArray[Any]:
    """Lists of numbers as an array [n, width], without a copy where all is in place."""
    if lists.null_count:
        where = f"row {lists.is_null().index(True).as_py():,}"
        raise FileError(path, "a vector is missing", where)
    if not pa.types.is_fixed_size_list(lists.type):
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        other = np.flatnonzero(lengths != width)
        if len(other):
            raise FileError(
                path,
                f"a vector has {count(int(lengths[other[0]]), 'number')}, and the first {width:,}",
                f"row {other[0]:,}",
            )
    values = lists.flatten()
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(lists), width)


# -- ids -------------------------------------------------------------------------------------------


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
