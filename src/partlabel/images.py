"""Image files: which there are, which belongs to an id, and which can be read."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from PIL import Image

from partlabel.errors import InputError

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}


class ImageFiles:
    """The images in a folder and its subfolders."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: there is no such folder of images")

    @cached_property
    def names(self) -> list[str]:
        """Paths below the folder, with ``/``, in order."""
        paths = (path for path in self.folder.rglob("*") if path.suffix.lower() in SUFFIXES)
        return sorted(path.relative_to(self.folder).as_posix() for path in paths)

    def locate(self, ids: Iterable[str]) -> list[Path | None]:
        """The file of each id, None if there is none.

        An id is a path below the folder, with or without its ending, or the bare name of a file
        that is somewhere below it and has no namesake.
        """
        return [self._locate(name) for name in ids]

    def _locate(self, name: str) -> Path | None:
        path = self.folder / name
        if name in self._exact or (Path(name).is_absolute() and path.is_file()):
            return path
        found = self._loose.get(name) or self._loose.get(name.rsplit("/", 1)[-1])
        return self.folder / found if found else None

    @cached_property
    def _exact(self) -> set[str]:
        return set(self.names)

    @cached_property
    def _loose(self) -> dict[str, str | None]:
        """Other ways to call a file; None for a name that two files share."""
        found: dict[str, str | None] = {}
        for name in self.names:
            path = Path(name)
            for alias in {path.name, path.stem, path.with_suffix("").as_posix()}:
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
