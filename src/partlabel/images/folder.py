"""Image files: listing a folder, and checking that images can be read."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from PIL import ExifTags

from partlabel.base.errors import FileError, InputError
from partlabel.images.collection import Images
from partlabel.images.decoding import SUFFIXES, named_warnings, open_image
from partlabel.images.stored import ImageFile

NO_SYMLINKS = "PARTLABEL_NO_SYMLINKS"
"""The environment variable that forbids symbolic links below image folders."""


class ImageFiles(Images):
    """The images in a folder and its subfolders.

    Symbolic links are followed, also to folders elsewhere, unless the environment variable
    PARTLABEL_NO_SYMLINKS is set (``partlabel --no-symlinks``).
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.where = self.folder = Path(folder)
        self.hint = "is this the right folder?"
        try:
            is_folder = self.folder.is_dir()
        except OSError as error:
            raise FileError(self.folder, f"cannot be read ({error.strerror})") from error
        if not is_folder and self.folder.exists():
            raise FileError(self.folder, "is a file, not a folder of images")
        if not is_folder:
            raise FileError(self.folder, "there is no such folder of images")

    @cached_property
    def names(self) -> list[str]:
        """Paths relative to the folder, with ``/``, sorted; only those that are valid text."""
        return [name for name in self._listed if is_text(name)]

    @cached_property
    def undecodable(self) -> list[str]:
        """The other paths, whose bytes are not UTF-8, so that no id can name them; escaped."""
        return [escaped(name) for name in self._listed if not is_text(name)]

    @cached_property
    def _listed(self) -> list[str]:
        follow = not os.environ.get(NO_SYMLINKS)
        return sorted(_list_images(self.folder, "", follow=follow, parents=frozenset()))

    def at(self, name: str) -> Path:
        """The file with one of the names."""
        return self.folder / name

    @property
    def home(self) -> str:
        """The absolute path of the folder."""
        return str(self.folder.resolve())


def is_text(path: str | os.PathLike[str]) -> bool:
    """Whether the bytes of a path are valid UTF-8; label files can only hold such names."""
    name = os.fspath(path)
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def escaped(path: str | os.PathLike[str]) -> str:
    r"""A path with bytes that are not UTF-8 as escape sequences.

    >>> escaped(os.fsdecode(b"photos/\xff.png"))
    'photos/\\xff.png'
    """
    return os.fsencode(path).decode(errors="backslashreplace")


def _list_images(
    folder: Path, prefix: str, *, follow: bool, parents: frozenset[tuple[int, int]]
) -> Iterator[str]:
    """The images below a folder, each with ``prefix`` before its path.

    Args:
        follow: whether symbolic links are followed.
        parents: device and inode of the folders that lead here; a link to one of them is a loop.
    """
    status = folder.stat()
    chain = parents | {(status.st_dev, status.st_ino)}
    if chain == parents:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink() and not follow:
                continue
            if _is_folder(entry):
                yield from _list_images(
                    folder / entry.name, f"{prefix}{entry.name}/", follow=follow, parents=chain
                )
            elif os.path.splitext(entry.name)[1].lower() in SUFFIXES:  # noqa: PTH122  # fast
                yield prefix + entry.name


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def why_unreadable(path: ImageFile) -> str | None:
    """The reason why an image cannot be decoded completely, None if it can."""
    try:
        with open_image(path) as image:
            image.draft("RGB", (64, 64))  # decodes a JPEG at a small size, but reads all of it
            image.load()
    except InputError:  # of a setting, not of this image
        raise
    except Exception as error:  # decoders raise almost any exception for damaged files
        return str(error) or type(error).__name__
    return None


def upright_size(path: ImageFile) -> tuple[int, int]:
    """Width and height of an image in pixels, after the rotation that its EXIF data asks for."""
    with open_image(path) as image:
        is_rotated = image.getexif().get(ExifTags.Base.Orientation, 1) in range(5, 9)
        width, height = image.size
    return (height, width) if is_rotated else (width, height)


def unreadable(
    images: Sequence[ImageFile], done: Callable[[int], object] = int
) -> dict[ImageFile, str]:
    """The images that cannot be decoded, each with the reason.

    ``done`` is called after each image with the number of images checked so far.
    """
    reasons = {}
    with named_warnings(), ThreadPoolExecutor(os.cpu_count()) as pool:
        results = zip(images, pool.map(why_unreadable, images), strict=True)
        for number, (path, reason) in enumerate(results, start=1):
            if reason is not None:
                reasons[path] = reason
            done(number)
    return reasons
