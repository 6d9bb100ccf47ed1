"""Images in several larger files, called shards."""

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from partlabel.base.errors import FileError
from partlabel.images.collection import Images
from partlabel.images.stored import Member


class Shard(ABC):
    """The index of a larger file with images: their names, and how to find each.

    Attributes:
        file: the larger file.
        names: the names of its images, in the order of the file; no two are the same.
        undecodable: names of others that are not UTF-8; escaped.
        numbered: whether the names are only numbers, because the file has no names.
    """

    file: Path
    names: list[str]
    undecodable: list[str]
    numbered: bool = False

    @abstractmethod
    def member(self, number: int) -> Member:
        """One of the images."""


class ShardedImages(Images):
    """The images of shards, sorted by their names as those of a folder are.

    If two shards have a name in common, or images have only numbers, the names of all images start
    with the name of their shard: ``shard-003.tar/cat.jpg``.

    Args:
        where: the shards, as they were named by the user.
        shards: at least one.
    """

    def __init__(self, where: Path, shards: Sequence[Shard]) -> None:
        self.where, self.shards = where, shards
        self._starts = list(accumulate((len(shard.names) for shard in shards), initial=0))
        self.hint = "are these the right files? They have no images."
        if self.names:
            first = self.names[0]
            self.hint = f"are these the right files? Their images are called like '{first}'."

    @cached_property
    def names(self) -> list[str]:
        """The names, sorted. If they are numbers, in the order of the files."""
        return list(self._numbers) if self._numbered else sorted(self._numbers)

    @property
    def _numbered(self) -> bool:
        return any(shard.numbered for shard in self.shards)

    def _listed(self) -> list[str]:
        """Names of members, with the name of the shard in front if they are not unique."""
        names = [name for shard in self.shards for name in shard.names]
        several = len(self.shards) > 1
        if len(set(names)) == len(names) and not (several and self._numbered):
            return names
        titles = _titles([shard.file for shard in self.shards])
        parts = zip(titles, self.shards, strict=True)
        return [f"{title}/{name}" for title, shard in parts for name in shard.names]

    @property
    def undecodable(self) -> list[str]:
        """Names that are not UTF-8."""
        return [f"{shard.file.name}/{name}" for shard in self.shards for name in shard.undecodable]

    def at(self, name: str) -> Member:
        """The image with one of the names."""
        number = self._numbers[name]
        shard = bisect_right(self._starts, number) - 1
        return self.shards[shard].member(number - self._starts[shard])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._listed())}


def _titles(files: Sequence[Path]) -> list[str]:
    """A short name of each file: its path below the folder that all share."""
    names = [file.name for file in files]
    if len(set(names)) == len(names):
        return names
    absolute = [str(file.absolute()) for file in files]
    shared = os.path.commonpath(absolute)
    titles = [os.path.relpath(path, shared) for path in absolute]
    if len(set(titles)) < len(titles):
        twice = next(
            file for file, title in zip(files, titles, strict=True) if titles.count(title) > 1
        )
        raise FileError(twice, "is named twice")
    return titles


def stamp(file: Path) -> tuple[int, ...]:
    """Numbers that change when a file is written again; (0,) if it is not there."""
    try:
        status = file.stat()
    except OSError:
        return (0,)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
