"""The formats of files of vectors: how each is opened without reading the vectors."""

import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from partlabel.base.errors import FileError, InputError, count, some

Part = NDArray[Any] | Tensor  # [rows, D], possibly mapped from a file

FEATURE_NAMES = ("features", "embeddings", "vectors", "x", "X")
ID_NAMES = ("image", "id", "ids", "name", "names", "filename", "file_name", "file", "path")


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


@contextmanager
def readable(path: Path) -> Iterator[None]:
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


OPENERS: dict[str, Callable[[Path], Contents]] = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".safetensors": _open_safetensors,
    ".parquet": _open_parquet,
    ".arrow": _open_arrow,
}
SUFFIXES = tuple(OPENERS)


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
