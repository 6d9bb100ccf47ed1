"""Images in Parquet files: a column of bytes, as the datasets of Hugging Face have it.

A row is read with its row group, the smallest part of such a file that can be read. Groups that
were read last are kept, so that reading in the order of the file reads each of them once.
"""

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet

from partlabel.base.errors import FileError, data_size, some
from partlabel.images.shards import Shard, stamp
from partlabel.images.stored import (
    LARGEST,
    Member,
    UnreadableImageError,
    check_size,
    is_regular,
    resolved_file,
)

ID_COLUMNS = ("file_name", "filename", "file", "path", "image_id", "id", "name", "__key__")
"""Columns with the names of images, if the images have none; the first one counts."""

_USUAL = ("image", "img", "picture", "photo", "jpg", "png")  # of several columns of images
_TOGETHER = 64  # rows that are decoded at a time: a file may repeat one large value very often
_LONGEST = 4096  # characters of a name
_KEPT = 1 << 28  # bytes of row groups that are kept


@dataclass(frozen=True, slots=True)
class ParquetCell(Member):
    """An image in a Parquet file.

    Args:
        file: the Parquet file.
        name: of the image.
        column: the path of the column with its bytes.
        group, row: its row group, and its row in this.
    """

    file: Path
    name: str
    column: str
    group: int
    row: int
    size: None = None

    def read(self) -> bytes:
        """The content of the image."""
        return _groups.read(self)

    def resolved(self) -> Self:
        """The same image, with the file behind symbolic links."""
        return replace(self, file=resolved_file(self.file))

    @property
    def position(self) -> str:
        """Where in the file it is."""
        return f"{self.column} {self.group} {self.row}"

    __str__ = Member.__str__


class ParquetShard(Shard):
    """The index of a Parquet file: its column of images, their names, and its row groups."""

    def __init__(self, file: Path) -> None:
        self.file, self.undecodable = file, []
        with _opened(file) as parquet:
            schema, metadata = parquet.schema_arrow, parquet.metadata
            if metadata.num_rows > max(file.stat().st_size, 1):
                raise FileError(file, "damaged: it states more rows than it has bytes")
            field = _image_field(file, schema)
            nested = pa.types.is_struct(field.type)
            self.column = f"{field.name}.bytes" if nested else field.name
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            self._starts = list(accumulate((group.num_rows for group in groups), initial=0))
            # not the size of the column: asking for that aborts the process if a file is damaged
            if any(group.total_byte_size > LARGEST for group in groups):
                raise _too_large(file)
            columns = [f"{field.name}.path"] if nested and _has(field.type, "path") else []
            columns += [name for name in ID_COLUMNS if _is_name(schema, name)]
            self.names = [str(row) for row in range(metadata.num_rows)]
            self.numbered = True
            for column in columns:
                names = _names(file, parquet, column)
                if names is not None:
                    self.names, self.numbered = names, False
                    break

    def member(self, number: int) -> ParquetCell:
        """One of the images."""
        group = bisect_right(self._starts, number) - 1
        row = number - self._starts[group]
        return ParquetCell(self.file, self.names[number], self.column, group, row)


@contextmanager
def _opened(file: Path) -> Iterator[pa.parquet.ParquetFile]:
    """A Parquet file; whatever is wrong with it is an error that names it."""
    try:
        if not is_regular(file):
            raise FileError(file, "is no regular file")
        with pa.parquet.ParquetFile(os.fspath(file), pre_buffer=False) as parquet:
            yield parquet
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise FileError(file, f"cannot be read as Parquet ({error})") from error


def _image_field(file: Path, schema: pa.Schema) -> pa.Field:
    """The column of images: bytes, or a struct with bytes in it."""
    fields = [field for field in schema if _has_bytes(field.type)]
    usual = [field for name in _USUAL for field in fields if field.name.lower() == name]
    if not fields:
        raise FileError(
            file,
            f"no column has the bytes of images; its columns are {some(schema.names, 8)}. Images "
            "are a column of binary values, or of structs with a field 'bytes'",
        )
    if len(fields) > 1 and not usual:
        names = some(field.name for field in fields)
        raise FileError(file, f"several columns may have images: {names}; call one of them 'image'")
    return (usual or fields)[0]


def _has_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return _has(kind, "bytes") and _is_bytes(kind.field("bytes").type)
    return _is_bytes(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary())


def _has(kind: pa.StructType, name: str) -> bool:
    fields = [kind.field(number).name for number in range(kind.num_fields)]
    return fields.count(name) == 1


def _is_name(schema: pa.Schema, name: str) -> bool:
    if schema.names.count(name) != 1:
        return False
    kind = schema.field(name).type
    return kind in (pa.string(), pa.large_string()) or bool(pa.types.is_integer(kind))


def _too_large(file: Path) -> FileError:
    return FileError(
        file,
        f"a row group has more than {data_size(LARGEST)}, and only whole row groups can "
        "be read; write the file with smaller ones: row_group_size=100",
    )


def _names(file: Path, parquet: "pa.parquet.ParquetFile", column: str) -> list[str] | None:
    """The names in a column; None if one is missing, or if two are the same."""
    names: list[str] = []
    for values in _values(parquet, column, None):
        names += [str(value) for value in values.to_pylist() if value is not None]
        if any(len(name) > _LONGEST for name in names[-_TOGETHER:]):
            raise FileError(file, f"a name in '{column}' has more than {_LONGEST:,} characters")
    whole = len(names) == parquet.metadata.num_rows and all(names)
    return names if whole and len(set(names)) == len(names) else None


def _values(
    parquet: "pa.parquet.ParquetFile", column: str, groups: list[int] | None
) -> Iterator[pa.Array]:
    """The values of a column, a few rows at a time.

    Args:
        column: a name, or the name of a struct and of a field in it.
        groups: the row groups; None for all.
    """
    for batch in parquet.iter_batches(
        _TOGETHER, row_groups=groups, columns=[column], use_threads=False
    ):
        values = batch.column(0)
        values.validate(full=True)
        yield values.flatten()[0] if pa.types.is_struct(values.type) else values


class _Groups:
    """The row groups that were read last; any thread may ask."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Keep nothing; also the lock is new, as a thread that held it may be gone."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Path, str, int], _Group] = OrderedDict()

    def read(self, cell: ParquetCell) -> bytes:
        """The content of an image."""
        key = cell.file, cell.column, cell.group
        with self._lock:
            if key not in self._kept:
                self._kept[key] = _read_group(cell)
                while len(self._kept) > 1 and sum(g.size for g in self._kept.values()) > _KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            group = self._kept[key]
        return group.value(cell.row)


@dataclass(frozen=True)
class _Group:
    """A row group: its values in parts, the first row of each part, and the bytes they take."""

    parts: list[pa.Array]
    starts: list[int]
    size: int

    def value(self, row: int) -> bytes:
        """The content of an image."""
        part = bisect_right(self.starts, row) - 1
        if row >= self.starts[-1]:
            raise UnreadableImageError("the file has fewer rows than before")
        value = self.parts[part][row - self.starts[part]]
        if not value.is_valid:
            raise UnreadableImageError("the file has no bytes of it")
        content: pa.Buffer = value.as_buffer()
        check_size(content.size)
        return bytes(content)


def _read_group(cell: ParquetCell) -> _Group:
    parts: list[pa.Array] = []
    size = 0
    try:
        with _opened(cell.file) as parquet:
            for values in _values(parquet, cell.column, [cell.group]):
                parts.append(values)
                size += values.nbytes
                if size > LARGEST:
                    raise _too_large(cell.file)
    except FileError as error:
        raise UnreadableImageError(str(error)) from error
    except IndexError as error:
        raise UnreadableImageError("the file has fewer row groups than before") from error
    return _Group(parts, list(accumulate(map(len, parts), initial=0)), size)


_groups = _Groups()
os.register_at_fork(after_in_child=_groups.forget)


def open_parquet(file: Path) -> ParquetShard:
    """The index of a Parquet file; it is read again only if the file has changed."""
    return _open(file, stamp(file))


@lru_cache(maxsize=4096)
def _open(file: Path, _: tuple[int, ...]) -> ParquetShard:
    return ParquetShard(file)
