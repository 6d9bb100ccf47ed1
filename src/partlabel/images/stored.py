"""Where an image is stored: in a file of its own, or inside a larger file.

``ImageFile`` is what finding an image gives, and what decoding, hashing and comparing images take.
The name of a member is only a name: it is never used as a path.
"""

import os
import stat
from abc import ABC, abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import Self

from partlabel.base.errors import data_size

LARGEST = 1 << 30
"""Most bytes of an image inside a larger file."""


class UnreadableImageError(Exception):
    """Something that is not opened as an image; the message is the reason."""


class Member(ABC):
    """An image inside a larger file. Equal members are the same bytes of the same file.

    Attributes:
        file: the larger file.
        name: the name of the image in it.
        size: number of bytes; None if only reading tells.
    """

    __slots__ = ()
    file: Path
    name: str
    size: int | None

    @abstractmethod
    def read(self) -> bytes:
        """The content of the image.

        Raises:
            UnreadableImageError: the file does not have it any more, or it is too large.
            OSError: the file cannot be read.
        """

    @abstractmethod
    def resolved(self) -> Self:
        """The same image, with the file behind symbolic links."""

    @property
    @abstractmethod
    def position(self) -> str:
        """Where in the file it is."""

    def __str__(self) -> str:
        return f"{self.file}/{self.name}"


ImageFile = Path | Member
"""Where an image is stored. ``str`` of it is its name in messages."""


def is_regular(path: Path) -> bool:
    """Whether a path leads to a regular file, not to a pipe, a device or a folder."""
    return stat.S_ISREG(path.stat().st_mode)


def read_content(image: ImageFile) -> bytes:
    """The content of an image.

    Raises:
        UnreadableImageError: it is no regular file, or not there.
        OSError: the file cannot be read.
    """
    if isinstance(image, Member):
        return image.read()
    if not is_regular(image):
        raise UnreadableImageError("not a regular file")
    return image.read_bytes()


def size_of(image: ImageFile) -> int | None:
    """Number of bytes of an image; None if only reading tells."""
    return image.size if isinstance(image, Member) else image.stat().st_size


def resolved(image: ImageFile) -> ImageFile:
    """An image behind symbolic links, so that the same image is equal however it was named."""
    return image.resolved() if isinstance(image, Member) else image.resolve()


@lru_cache(maxsize=4096)
def resolved_file(path: Path) -> Path:
    """A file behind symbolic links; asked for once, though it has thousands of images."""
    return path.resolve()


def version_of(image: ImageFile) -> str:
    """A text that changes when the file of an image is written again.

    Raises:
        OSError: the file is gone.
    """
    file = image.file if isinstance(image, Member) else image
    position = image.position if isinstance(image, Member) else ""
    status = file.stat()
    return f"{file}\0{status.st_mtime_ns}\0{status.st_size}\0{position}"


def check_size(size: int) -> None:
    """Raise an error for an image that is too large to read at once."""
    if size > LARGEST:
        raise UnreadableImageError(
            f"{data_size(size)} are more than the limit of {data_size(LARGEST)}"
        )


def read_part(path: Path, offset: int, size: int) -> bytes:
    """Some bytes of a regular file; fewer if it ends before."""
    # without O_NONBLOCK a pipe that took the place of the file would block
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise UnreadableImageError("not a regular file")
        return os.pread(handle, size, offset)
    finally:
        os.close(handle)
