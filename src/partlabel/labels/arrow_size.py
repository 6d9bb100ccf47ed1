"""The memory that an Arrow file takes when its compressed parts are expanded, from its headers.

Arrow allocates whatever a compressed buffer declares, and has no function that tells the sizes
beforehand. So this module reads the few fields of the headers (flatbuffers) that hold them:
https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format
"""

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

_MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF  # before the length of a message
_DICTIONARY_BATCH = 2  # the type of a message; its record batch is one level deeper
_MOST_BLOCKS = 16  # a label table has one record batch, and one dictionary if it has splits


@dataclass(frozen=True)
class _Table:
    """A flatbuffers table: a position from which its fields are found."""

    data: bytes
    position: int

    @classmethod
    def root(cls, data: bytes) -> "_Table":
        return cls(data, _integer("<I", data, 0))

    def _field(self, number: int) -> int | None:
        """The position of a field, None if the table does not have it."""
        offsets = self.position - _integer("<i", self.data, self.position)
        if 4 + 2 * number >= _integer("<H", self.data, offsets):
            return None
        offset = _integer("<H", self.data, offsets + 4 + 2 * number)
        return self.position + offset if offset else None

    def byte(self, number: int) -> int:
        """A field of one byte."""
        at = self._field(number)
        return 0 if at is None else _integer("<B", self.data, at)

    def table(self, number: int) -> "_Table | None":
        """A field that is a table."""
        at = self._field(number)
        return None if at is None else _Table(self.data, at + _integer("<I", self.data, at))

    def structs(self, number: int, form: str) -> Iterator[tuple[int, ...]]:
        """The items of a field that is a list of structs."""
        at = self._field(number)
        if at is None:
            return
        start = at + _integer("<I", self.data, at)
        for i in range(_integer("<I", self.data, start)):
            yield _unpack(form, self.data, start + 4 + i * struct.calcsize(form))


def expanded_size(path: str | os.PathLike[str]) -> int:
    """Bytes that the compressed buffers of an Arrow file declare; 0 if nothing is compressed.

    Raises:
        ValueError: the headers are damaged, or there are too many blocks for a label table.
    """
    with (
        Path(path).open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        blocks = list(islice(_blocks(content), _MOST_BLOCKS + 1))
        if len(blocks) > _MOST_BLOCKS:
            raise ValueError(f"more than {_MOST_BLOCKS} blocks")
        return sum(_expanded(content, offset, length) for offset, length in blocks)


def _blocks(content: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Offset and length of the header of each block, which the end of the file lists."""
    end = len(content) - len(_MAGIC) - 4
    if end < 0 or content[end + 4 :] != _MAGIC:
        raise ValueError("the end of the file is missing")
    length = _integer("<i", content, end)
    footer = _Table.root(_slice(content, end - length, length))
    for number in (2, 3):  # dictionaries, record batches
        for offset, header_length, _ in footer.structs(number, "<qi4xq"):
            yield offset, header_length


def _expanded(content: mmap.mmap, offset: int, length: int) -> int:
    """Bytes that the compressed buffers of one block declare."""
    header = _slice(content, offset, length)
    prefix = 8 if _integer("<I", header, 0) == _CONTINUATION else 4
    message = _Table.root(header[prefix:])
    batch = message.table(2)
    if batch is not None and message.byte(1) == _DICTIONARY_BATCH:
        batch = batch.table(1)
    if batch is None or batch.table(3) is None:  # no compression
        return 0
    body = offset + length
    # the first eight bytes of a compressed buffer are its size, or -1 if it is stored as it is
    sizes = (
        _integer("<q", content, body + start)
        for start, stored in batch.structs(2, "<qq")
        if stored > 0
    )
    return sum(max(size, 0) for size in sizes)


def _slice(content: mmap.mmap, start: int, length: int) -> bytes:
    if start < 0 or length < 0 or start + length > len(content):
        raise ValueError("a header lies outside the file")
    return content[start : start + length]


def _integer(form: str, data: bytes | mmap.mmap, position: int) -> int:
    return int(_unpack(form, data, position)[0])


def _unpack(form: str, data: bytes | mmap.mmap, position: int) -> tuple[int, ...]:
    if position < 0 or position + struct.calcsize(form) > len(data):
        raise ValueError("a header is damaged")
    return struct.unpack_from(form, data, position)
