"""Compressed label files: ``.gz`` and ``.zst``."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_file

LARGEST = 4 << 30
"""Most bytes that a compressed file may have when it is unpacked."""

_CODEC_BY_SUFFIX = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_CODEC_BY_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_CHUNK = 1 << 24


def unpacked_suffix(path: Path) -> str:
    """The suffix of a file name in lower case, without that of the compression.

    >>> unpacked_suffix(Path("labels.CSV.gz")), unpacked_suffix(Path("labels.tsv"))
    ('.csv', '.tsv')
    """
    name = Path(path.stem) if path.suffix.lower() in _CODEC_BY_SUFFIX else path
    return name.suffix.lower()


def unpacked_stem(path: Path) -> str:
    """The name of a file without its suffix and that of the compression.

    >>> unpacked_stem(Path("north.csv.gz")), unpacked_stem(Path("v1.2.csv"))
    ('north', 'v1.2')
    """
    return Path(path.stem).stem if is_packed(path) else path.stem


def is_packed(path: Path) -> bool:
    """Whether the name of a file to write asks for compression."""
    return path.suffix.lower() in _CODEC_BY_SUFFIX


def codec_of(head: bytes) -> str | None:
    """The codec of a file with these first bytes, None if it is not compressed."""
    for magic, codec in _CODEC_BY_MAGIC.items():
        if head.startswith(magic):
            return codec
    return None


def unpack(path: Path, codec: str, target: IO[bytes], *, shown_as: Path) -> None:
    """Decompress a file; one that becomes larger than ``LARGEST`` is an error.

    Args:
        shown_as: the path in messages.
    """
    size = 0
    try:
        with path.open("rb") as packed, pa.CompressedInputStream(packed, codec) as stream:
            while chunk := stream.read(_CHUNK):
                size += len(chunk)
                if size > LARGEST:
                    raise FileError(
                        shown_as,
                        f"is larger than {LARGEST >> 30} GiB when it is unpacked; unpack it "
                        "yourself if it is what you expect",
                    )
                target.write(chunk)
    except FileError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FileError(shown_as, f"cannot be unpacked as {codec} ({error})") from error
    target.flush()


@contextmanager
def packed_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write atomically, compressed if its name ends with ``.gz`` or ``.zst``."""
    codec = _CODEC_BY_SUFFIX.get(Path(path).suffix.lower())
    with atomic_file(path) as stream:
        if codec is None:
            yield stream
            return
        # closing a compressed stream closes the file below it, which atomic_file still needs
        with (
            os.fdopen(os.dup(stream.fileno()), "wb") as copy,
            pa.CompressedOutputStream(copy, codec) as packed,
        ):
            yield packed
