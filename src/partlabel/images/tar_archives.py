"""Images in tar archives, as webdataset writes them. Archives are indexed, and never unpacked."""

import tarfile
from array import array
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self

from partlabel.base.errors import FileError
from partlabel.images.decoding import SUFFIXES
from partlabel.images.folder import escaped, is_text
from partlabel.images.shards import Shard, stamp
from partlabel.images.stored import (
    Member,
    UnreadableImageError,
    check_size,
    is_regular,
    read_part,
    resolved_file,
)

_BLOCK = 512  # bytes of a header; a block of zeros ends an archive
_LONGEST = 1 << 20  # bytes of a header of a member with a long name
_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
}
COMPRESSED_SUFFIXES = (".gz", ".tgz", ".zst", ".tzst", ".bz2", ".tbz2", ".xz", ".txz")


@dataclass(frozen=True, slots=True)
class TarMember(Member):
    """An image in a tar archive.

    Args:
        file: the archive.
        name: the path of the member in it, as stored.
        offset, size: its bytes in the archive.
    """

    file: Path
    name: str
    offset: int
    size: int

    def read(self) -> bytes:
        """The content of the image."""
        check_size(self.size)
        content = read_part(self.file, self.offset, self.size)
        if len(content) < self.size:
            raise UnreadableImageError("the archive ends within the image")
        return content

    def resolved(self) -> Self:
        """The same image, with the file behind symbolic links."""
        return replace(self, file=resolved_file(self.file))

    @property
    def position(self) -> str:
        """Where in the archive it is."""
        return f"{self.offset} {self.size}"

    __str__ = Member.__str__


class TarShard(Shard):
    """The index of an archive: names, offsets and sizes of its images."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.names: list[str] = []
        self.undecodable: list[str] = []
        self._offsets, self._sizes = array("q"), array("q")
        try:
            if not is_regular(file):
                raise FileError(file, "is no regular file")
            with file.open("rb") as stream:
                self._read(stream)
        except OSError as error:
            raise FileError(file, f"cannot be read ({error.strerror or error})") from error
        except (tarfile.TarError, ValueError, ArithmeticError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(file, f"damaged: no tar archive ({error})") from error
        self._refuse_doubles()

    def member(self, number: int) -> TarMember:
        """One of the images."""
        name = self.names[number]
        return TarMember(self.file, name, self._offsets[number], self._sizes[number])

    def _read(self, stream: IO[bytes]) -> None:
        head = stream.read(_BLOCK)
        for magic, command in _COMPRESSED.items():
            if head.startswith(magic):
                raise _is_compressed(self.file, command)
        stream.seek(0)
        bounded: Any = _Bounded(stream)
        archive: Any
        with tarfile.open(fileobj=bounded, mode="r:", encoding="utf-8") as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # they would fill the memory
                self._add(member)
            end = archive.offset
        stream.seek(end)
        rest = stream.read(_BLOCK)
        if not rest:
            raise FileError(self.file, "cut off: it has no end marker; write the archive again")
        if rest != bytes(_BLOCK):  # tarfile takes a header that is damaged for the end
            raise FileError(self.file, f"damaged at byte {end:,}; write the archive again")

    def _add(self, member: tarfile.TarInfo) -> None:
        """Add a member that is an image; other members and links are ignored."""
        if not member.isreg() or member.issparse():
            return
        name = member.name.removeprefix("./")
        if PurePosixPath(name).suffix.lower() not in SUFFIXES:
            return
        if not is_text(name):
            self.undecodable.append(escaped(name))
            return
        self.names.append(name)
        self._offsets.append(member.offset_data)
        self._sizes.append(member.size)

    def _refuse_doubles(self) -> None:
        names: set[str] = set()
        for name in self.names:
            if name in names:
                raise FileError(
                    self.file, f"two images are called '{name}'; write the archive again"
                )
            names.add(name)


class _Bounded:
    """A file from which little is read at a time; a header that states a huge size is an error."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.seek, self.tell, self._stream = stream.seek, stream.tell, stream

    def read(self, size: int = -1) -> bytes:
        """At most this many bytes."""
        if not 0 <= size <= _LONGEST:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._stream.read(size)


def _is_compressed(file: Path, command: str) -> FileError:
    return FileError(
        file,
        f"is compressed, so that no image in it can be read alone; unpack it with `{command}` (the "
        "images are compressed already) and name the .tar file",
    )


def open_tar(file: Path) -> TarShard:
    """The index of an archive; it is read again only if the file has changed."""
    return _open(file, stamp(file))


@lru_cache(maxsize=4096)
def _open(file: Path, _: tuple[int, ...]) -> TarShard:
    return TarShard(file)
