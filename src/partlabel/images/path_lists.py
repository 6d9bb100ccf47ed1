"""Images that a text file lists: paths to files anywhere."""

import csv
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from partlabel.base.errors import FileError, count
from partlabel.images.collection import Images
from partlabel.images.folder import NO_SYMLINKS
from partlabel.images.shards import stamp
from partlabel.images.stored import is_regular

PATH_COLUMNS = ("path", "filepath", "file_path", "file", "file_name", "filename", "image")
"""The column of a table with the paths; the first one counts."""

NAME_COLUMNS = ("image", "image_id", "id", "name")
"""The column with the names of images, if it is another one."""

_LONGEST = 4096  # characters of a path


class ListedImages(Images):
    """The files that a list names.

    A .txt file has one path per line; a .csv or .tsv file has a column of paths, and may have one
    of names. Paths are absolute, or relative to the folder of the list. Without a column of names,
    an image is called as its path is written.

    Args:
        where: the list.
    """

    def __init__(self, where: Path) -> None:
        self.where = where
        self._paths: dict[str, Path] = {}
        lines: dict[str, int] = {}
        missing: list[tuple[int, str]] = []
        for line, name, text in _entries(where):
            path = where.parent / text
            if self._paths.setdefault(name, path) != path:
                raise FileError(
                    where, f"'{name}' is another file in line {lines[name]:,}", f"line {line:,}"
                )
            if name not in lines and not _exists(path):
                missing.append((line, text))
            lines.setdefault(name, line)
        if missing:
            line, text = missing[0]
            number = f"; {count(len(missing), 'path')} in all" if len(missing) > 1 else ""
            raise FileError(where, f"there is no file '{text}'{number}", f"line {line:,}")
        self.hint = "is this the right list?"

    @property
    def names(self) -> list[str]:
        """The names, in the order of the list."""
        return list(self._paths)

    @property
    def undecodable(self) -> list[str]:
        """None: a list is text."""
        return []

    def at(self, name: str) -> Path:
        """The file with one of the names."""
        return self._paths[name]

    @property
    def home(self) -> str:
        """The folder of the list."""
        return str(self.where.resolve().parent)


def _exists(path: Path) -> bool:
    """Whether there is a file; with ``--no-symlinks``, a link is none."""
    if os.environ.get(NO_SYMLINKS) and path.is_symlink():
        return False
    return path.exists() and not path.is_dir()


def _entries(file: Path) -> Iterator[tuple[int, str, str]]:
    """Line, name and path of each image of a list."""
    try:
        if not is_regular(file):
            raise FileError(file, "is no regular file")
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise FileError(file, f"cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise FileError(file, f"is not text in UTF-8 ({error})") from error
    is_table = file.suffix.lower() != ".txt"
    for line, name, path in _table_entries(file, text) if is_table else _line_entries(text):
        if not path and not name:
            continue
        if not path or not name or "\0" in path or max(len(path), len(name)) > _LONGEST:
            raise FileError(file, "has no path and name of an image", f"line {line:,}")
        yield line, name, path


def _line_entries(text: str) -> Iterator[tuple[int, str, str]]:
    for line, path in enumerate(text.splitlines(), start=1):
        yield line, path.strip(), path.strip()


def _table_entries(file: Path, text: str) -> Iterator[tuple[int, str, str]]:
    delimiter = "\t" if file.suffix.lower() == ".tsv" else ","
    reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        path = next((header.index(name) for name in PATH_COLUMNS if name in header), None)
        if path is None:
            raise FileError(file, f"has no column of paths; call it {PATH_COLUMNS[0]}")
        name = next((header.index(name) for name in NAME_COLUMNS if name in header), path)
        for fields in reader:
            if fields and len(fields) <= max(path, name):
                raise FileError(file, "has too few columns", f"line {reader.line_num:,}")
            if fields:
                yield reader.line_num, fields[name].strip(), fields[path].strip()
    except csv.Error as error:
        raise FileError(file, str(error), f"line {reader.line_num:,}") from error


def open_list(file: Path) -> ListedImages:
    """The images of a list; it is read again only if the file has changed."""
    return _open(file, stamp(file), bool(os.environ.get(NO_SYMLINKS)))


@lru_cache(maxsize=8)
def _open(file: Path, _: tuple[int, ...], __: bool) -> ListedImages:
    return ListedImages(file)
