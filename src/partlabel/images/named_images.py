"""What a user names as images, opened: a folder, shards, or a list of paths."""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from partlabel.base.errors import FileError, InputError
from partlabel.images.collection import Images
from partlabel.images.folder import ImageFiles, escaped, is_text
from partlabel.images.parquet_files import open_parquet
from partlabel.images.path_lists import open_list
from partlabel.images.shards import ShardedImages
from partlabel.images.stored import ImageFile
from partlabel.images.tar_archives import COMPRESSED_SUFFIXES, open_tar

LISTS = (".csv", ".tsv", ".txt")
SHARDS = {".tar": open_tar, ".parquet": open_parquet}

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})")
_MOST = 100_000  # shards


def open_images(where: str | os.PathLike[str]) -> Images:
    """The images that a user names.

    Args:
        where: a folder; a .csv, .tsv or .txt list of paths; or shards, which are .tar archives or
            .parquet files: one, ``shard-{000..127}.tar``, or ``train-*.parquet``.
    """
    path = Path(where)
    if _is_folder(path):
        return ImageFiles(path)
    suffix = path.suffix.lower()
    if suffix in LISTS:
        return open_list(path)
    if path.name.lower().endswith(COMPRESSED_SUFFIXES):
        raise FileError(path, "is compressed: images are read from .tar files that are not")
    if suffix in SHARDS:
        return ShardedImages(path, [SHARDS[suffix](file) for file in shard_files(path)])
    if _is_file(path):
        raise FileError(
            path,
            "is a file, not a folder of images; shards end in .tar or .parquet, and lists of paths "
            "in .csv, .tsv or .txt",
        )
    return ImageFiles(path)


def are_here(where: Path) -> bool:
    """Whether there is a folder, a list or shards with this name."""
    if where.suffix.lower() in SHARDS and not where.exists():
        try:
            return all(map(_is_file, shard_files(where)))
        except InputError:
            return False
    return where.is_dir() or _is_file(where)


def has_any(where: Path, names: Iterable[str]) -> bool:
    """Whether some images with these names are here; similar names count, except in a folder."""
    if where.is_dir():
        return any((where / name).is_file() for name in names)
    return any(match is not None for match in open_images(where).match(names))


def shard_files(where: Path) -> list[Path]:
    """The files that a name with braces or stars stands for; one that is missing is an error.

    >>> [str(path) for path in shard_files(Path("/dev/{null,zero}"))]
    ['/dev/null', '/dev/zero']
    """
    if where.exists():
        return [where]
    files: list[Path] = []
    for number, text in enumerate(expand(str(where))):
        if number >= _MOST:
            raise FileError(where, f"names more than {_MOST:,} shards")
        if Path(text).exists():
            files.append(Path(text))
            continue
        found = sorted(glob.glob(text))  # noqa: PTH207  # a path with a star in any part
        if not found:
            of_all = f" ({where} names it)" if text != str(where) else ""
            raise FileError(text, f"there is no such file of images{of_all}")
        files += map(Path, found)
    return files


def expand(text: str) -> Iterator[str]:
    """The texts that a text with braces stands for, as in a shell.

    >>> list(expand("s-{08..10}.tar"))
    ['s-08.tar', 's-09.tar', 's-10.tar']
    >>> list(expand("{a,b}/{0..1}"))
    ['a/0', 'a/1', 'b/0', 'b/1']
    """
    for braces in _BRACES.finditer(text):
        content = braces[1]
        options: Iterable[str] = content.split(",")
        if span := _RANGE.fullmatch(content):
            options = _numbers(span[1], span[2])
        elif "," not in content:
            continue  # a shell leaves it as it is
        for option in options:
            for rest in expand(text[braces.end() :]):
                yield text[: braces.start()] + option + rest
        return
    yield text


def _numbers(first: str, last: str) -> Iterator[str]:
    """Numbers from first to last; as wide as the wider one if one begins with 0."""
    padded = any(len(text) > 1 and text.startswith("0") for text in (first, last))
    width = max(len(first), len(last)) if padded else 0
    step = 1 if int(first) <= int(last) else -1
    return (f"{n:0{width}d}" for n in range(int(first), int(last) + step, step))


def list_images(paths: Iterable[Path]) -> tuple[dict[str, ImageFile], list[str]]:
    """Each image by its name: image files, and all images of folders, shards and lists.

    Where several images have the same name, each gets its whole path instead.

    Returns:
        The images, and messages about images whose names no label file can hold.
    """
    files: list[tuple[str, ImageFile]] = []
    undecodable: list[str] = []
    for path in paths:
        if _is_collection(path):
            images = open_images(path)
            files += [(name, images.at(name)) for name in images.names]
            undecodable += [f"{escaped(path)}/{name}" for name in images.undecodable]
        elif not path.is_file():
            raise InputError(f"{escaped(path)}: there is no such image or folder")
        elif is_text(path.name):
            files.append((path.name, path))
        else:
            undecodable.append(escaped(path))
    times = Counter(name for name, _ in files)
    named = {(name if times[name] == 1 else str(file)): file for name, file in files}
    return named, [f"{name}: its name is not UTF-8; rename the file" for name in undecodable]


def _is_collection(path: Path) -> bool:
    return _is_folder(path) or path.suffix.lower() in (*SHARDS, *LISTS, *COMPRESSED_SUFFIXES)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # opening it says why
        return False


def _is_file(path: Path) -> bool:
    """Whether there is something with this name that is no folder."""
    try:
        return path.exists() and not path.is_dir()
    except OSError:
        return False
