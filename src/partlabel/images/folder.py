"""Image files: which there are, which belongs to an id, and which can be read."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from PIL import ExifTags, Image

from partlabel.base.errors import FileError

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}


class ImageFiles:
    """The images in a folder and its subfolders."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            is_folder = self.folder.is_dir()
        except OSError as error:
            raise FileError(self.folder, f"cannot be read ({error.strerror})") from error
        if not is_folder:
            what = "is a file, not" if self.folder.exists() else "there is no such"
            raise FileError(self.folder, f"{what} a folder of images".replace("such a", "such"))

    @cached_property
    def names(self) -> list[str]:
        """Paths below the folder, with ``/``, in order."""
        found = []
        for place, _, files in os.walk(self.folder):
            below = Path(place).relative_to(self.folder)
            found += [(below / f).as_posix() for f in files if Path(f).suffix.lower() in SUFFIXES]
        return sorted(found)

    def locate(self, ids: Iterable[str]) -> list[Path | None]:
        """The file of each id, None if there is none.

        An id is a path below the folder (which may start with the folder's own name), with or
        without its ending; or a bare name, if exactly one file somewhere below is called so.
        """
        return [self._locate(name) for name in ids]

    def _locate(self, name: str) -> Path | None:
        if name.startswith("/"):
            return Path(name) if Path(name).is_file() else None
        for path in (name, name.removeprefix(self.folder.resolve().name + "/")):
            if path in self._exact:
                return self.folder / path
            if self._without_ending.get(path):
                return self.folder / str(self._without_ending[path])
        found = self._bare.get(name)
        return self.folder / found if found else None

    @cached_property
    def _exact(self) -> set[str]:
        return set(self.names)

    @cached_property
    def _without_ending(self) -> dict[str, str | None]:
        return _aliases((name.rsplit(".", 1)[0], name) for name in self.names)

    @cached_property
    def _bare(self) -> dict[str, str | None]:
        paths = [(Path(name), name) for name in self.names]
        return _aliases((alias, name) for path, name in paths for alias in (path.name, path.stem))


def _aliases(pairs: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """Other names of files; None for a name that two files share."""
    found: dict[str, str | None] = {}
    for alias, name in pairs:
        found[alias] = None if alias in found else name
    return found


def why_unreadable(path: Path) -> str | None:
    """Why this image cannot be decoded to its last byte, None if it can."""
    try:
        with Image.open(path) as image:
            image.draft("RGB", (64, 64))  # JPEG: as small as possible, still reading all of it
            image.load()
    except Exception as error:  # decoders of damaged files raise almost anything
        return str(error) or type(error).__name__
    return None


def upright_size(path: Path) -> tuple[int, int]:
    """Width and height of an image in pixels, as it is to be looked at."""
    with Image.open(path) as image:
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) in range(5, 9)
        width, height = image.size
    return (height, width) if turned else (width, height)


def unreadable(paths: list[Path], done: Callable[[int], object] = int) -> dict[Path, str]:
    """Which of these images cannot be decoded, and why; ``done`` is told after each how many."""
    found = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = zip(paths, pool.map(why_unreadable, paths), strict=True)
        for number, (path, why) in enumerate(answers, start=1):
            if why is not None:
                found[path] = why
            done(number)
    return found
