"""A label file or folder on disk; all formats share it, so that the file is examined once."""

import codecs
import csv
import json
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet

from partlabel.base.errors import FileError, InputError, one_of
from partlabel.labels.formats import packing, spreadsheet
from partlabel.labels.formats.formulas import unquoted
from partlabel.labels.formats.reading_options import ReadOptions

if TYPE_CHECKING:
    from partlabel.labels.formats.delimited import Delimited

LONGEST_LINE = 16 << 20
"""Most bytes in a line of text; a file with a longer one is an error, before it fills memory."""

IMAGE_NAMES = (
    "image",
    "filename",
    "file_name",
    "file",
    "filepath",
    "path",
    "photo",
    "picture",
    "img",
    "image_id",
    "image_name",
    "id",
)
"""The column, or the key of a JSON object, with the name of an image; the first one counts."""

Kind = Literal["folder", "json", "jsonl", "parquet", "arrow", "xml", "text"]


def image_column(header: Iterable[str]) -> int | None:
    """The position of the column with the names of images, None if there is none."""
    names = [name.lower() for name in header]
    return next((names.index(name) for name in IMAGE_NAMES if name in names), None)


@dataclass(frozen=True)
class Text:
    """Properties of a text file: its encoding, and whether it contains quotation marks."""

    encoding: str
    quoted: bool


class Source:
    """A label file or folder; its properties are computed when first used, and cached.

    A compressed file, a sheet of an Excel file and a pipe are copied to a temporary file first.

    Args:
        path: the file or folder; ``file.xlsx#sheet`` names a sheet.
        options: how to read it.

    Attributes:
        file: the file that holds the content.
        remarks: what was done to get at the content.
    """

    parsed: "Delimited | None" = None  # set when the text table is read, since formats look at it

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions | None = None) -> None:
        self.path = Path(path)
        self.options = options or ReadOptions()
        self.remarks: list[str] = []
        self.sheet: str | None = None
        self.sheets = 0
        try:
            self.file, sheet = _split_sheet(self.path)
            mode = self.file.stat().st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise self.error("is a device, not a label file")
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a pipe can be read only once
                with self.file.open("rb") as stream, self._replaced() as spool:
                    shutil.copyfileobj(stream, spool)
            if self.file.is_file():
                self._unpack(sheet)
        except FileNotFoundError:
            raise self.error("there is no such file or folder") from None
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror or error})") from error
        except FileError:
            raise
        except ValueError as error:
            raise FileError(repr(os.fspath(path)), f"not a path ({error})") from None
        if self.file.is_file() and self.file.stat().st_size == 0:
            raise self.error("the file is empty")

    @contextmanager
    def _replaced(self) -> Iterator[IO[bytes]]:
        """A temporary file to fill; it then takes the place of the file.

        It is deleted with this object.
        """
        with tempfile.NamedTemporaryFile(delete=False) as spool:
            path = Path(spool.name)
            weakref.finalize(self, path.unlink, missing_ok=True)
            yield spool
        self.file = path

    def _unpack(self, sheet: str | None) -> None:
        """Replace a compressed file, and a sheet of an Excel file, by the text in it."""
        with self.file.open("rb") as stream:
            head = stream.read(4)
        codec = packing.codec_of(head)
        if codec is not None:
            with self._replaced() as spool:
                packing.unpack(self.file, codec, spool, shown_as=self.path)
            self.remarks.append(f"unpacked from {codec}")
        if head == spreadsheet.MAGIC:
            with self._replaced() as spool:
                info = spreadsheet.write_as_text(self.file, sheet, spool, shown_as=self.path)
            self.sheet, self.sheets = info.name, info.sheets
            number = f" of {info.sheets}" if info.sheets > 1 else ""
            self.remarks.append(f"read from the sheet '{info.name}'{number}")
        elif sheet is not None:
            raise self.error("is not an Excel file, so it has no sheets")

    def part(self, path: Path) -> "Source":
        """A file in this folder, to be read with the same options."""
        return Source(path, self.options)

    def error(self, message: str, where: str = "") -> FileError:
        """An error about this file, with the location in it."""
        return FileError(self.path, message, where)

    def line(self, number: int) -> str:
        """The location of a line of the text, which is a row of a sheet."""
        return f"{'line' if self.sheet is None else 'row'} {number:,}"

    @property
    def suffix(self) -> str:
        """The suffix of the file name in lower case, without that of a compression."""
        return packing.unpacked_suffix(self.path)

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the file."""
        try:
            with self.open() as stream:
                return stream.read(1 << 16)
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror})") from error

    @cached_property
    def kind(self) -> Kind:
        """The kind of file, detected from its first bytes."""
        if self.path.is_dir():
            return "folder"
        if self.sheet is not None:
            return "text"
        if self.head.startswith(b"PAR1"):
            return "parquet"
        if self.head.startswith(b"ARROW1"):
            return "arrow"
        start = self.head.removeprefix(codecs.BOM_UTF8).lstrip()
        if start.startswith(b"<"):
            return "xml"
        if not start.startswith((b"{", b"[")):
            return "text"
        if self.suffix in (".jsonl", ".ndjson"):
            return "jsonl"
        first_line = start.split(b"\n", 1)[0]
        return "jsonl" if _is_object_with_key(first_line, IMAGE_NAMES) else "json"

    @cached_property
    def text(self) -> Text:
        """The properties of a text file, after one pass over all of it."""
        if self.head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return Text("utf-16", quoted=True)
        decoder, encoding, quoted = codecs.getincrementaldecoder("utf-8")(), "utf-8", False
        for chunk in self._chunks():
            if b"\0" in chunk:
                raise self.error("has a NUL byte, so it is not a text file", self._line_of(b"\0"))
            if len(chunk) == LONGEST_LINE and b"\n" not in chunk and b"\r" not in chunk:
                raise self.error(f"a line is longer than {LONGEST_LINE >> 20} MiB")
            quoted = quoted or b'"' in chunk
            if encoding == "utf-8" and not (chunk.isascii() and not decoder.getstate()[0]):
                try:
                    decoder.decode(chunk)
                except UnicodeDecodeError:
                    encoding = "latin-1"
        ends_within_character = encoding == "utf-8" and decoder.getstate()[0]
        return Text("latin-1" if ends_within_character else encoding, quoted)

    def _chunks(self) -> Iterator[bytes]:
        try:
            with self.open() as stream:
                while chunk := stream.read(LONGEST_LINE):
                    yield chunk
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror})") from error

    def _line_of(self, byte: bytes) -> str:
        lines = 1
        for chunk in self._chunks():
            position = chunk.find(byte)
            lines += chunk.count(b"\n", 0, position if position >= 0 else None)
            if position >= 0:
                break
        return self.line(lines)

    def open(self) -> IO[bytes]:
        """The content as a stream of bytes."""
        return self.file.open("rb")

    def for_arrow(self) -> "str | pa.BufferReader":
        """The content as an argument for Arrow: a path, or a buffer if the path is not valid text.

        It is never a Python stream, because Arrow's threads may still use it when the interpreter
        exits.
        """
        path = os.fspath(self.file)
        return path if path.isprintable() else pa.BufferReader(self.file.read_bytes())

    def utf8(self) -> "str | pa.BufferReader":
        """The text in UTF-8 as an argument for Arrow, converted from another encoding if needed."""
        if self.text.encoding == "utf-8":
            return self.for_arrow()
        try:
            text = self.file.read_bytes().decode(self.text.encoding)
        except UnicodeDecodeError as error:
            raise self.error(f"not valid {self.text.encoding}: {error}") from error
        return pa.BufferReader(text.encode())

    def lines(self) -> Iterator[str]:
        """The lines of the text, with their line ends."""
        encoding = "utf-8-sig" if self.text.encoding == "utf-8" else self.text.encoding
        with self.file.open(encoding=encoding, newline="") as stream:
            try:
                yield from stream
            except UnicodeDecodeError as error:
                raise self.error(f"not valid {encoding}: {error}") from error

    @cached_property
    def delimiter(self) -> str:
        """The delimiter of a text table: the first comma, semicolon or tab in its header."""
        if self.sheet is not None:
            return ","
        header = next((line for line in self.lines() if line.strip()), "")
        positions = {header.find(mark): mark for mark in ",;\t" if mark in header}
        return positions[min(positions)] if positions else ","

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and fields of each record of a text table; blank lines are skipped."""
        reader = csv.reader(self.lines(), delimiter=self.delimiter)
        line = 1
        while True:
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise self.error(str(error), self.line(line)) from error
            if fields:
                yield line, fields
            line = reader.line_num + 1

    @cached_property
    def header(self) -> list[str]:
        """The names of the columns of a text table that are not ignored."""
        ignored = self.ignored(self.all_columns)
        names = [name for name in self.all_columns if name not in ignored]
        if not names:
            raise self.error("--ignore-columns leaves no column")
        return names

    def ignored(self, columns: list[str]) -> set[str]:
        """The columns to ignore; one that is not among these columns is an error."""
        try:
            return {one_of("column", name, columns) for name in self.options.ignore_columns}
        except InputError as error:
            raise self.error(f"--ignore-columns: {error}") from None

    @cached_property
    def all_columns(self) -> list[str]:
        """The first record of a text table, without spaces and apostrophes around the names."""
        for _, fields in self.records():
            return [unquoted(field.strip()) for field in fields]
        raise self.error("the file is empty")

    @cached_property
    def parquet_columns(self) -> list[str]:
        """The column names of a Parquet file that are not ignored."""
        try:
            names = list(pyarrow.parquet.read_schema(self.for_arrow()).names)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self.error(f"cannot be read as Parquet ({error})") from error
        ignored = self.ignored(names)
        return [name for name in names if name not in ignored]

    @cached_property
    def json(self) -> Any:
        """The parsed JSON document."""
        try:
            return json.loads(self.file.read_bytes(), object_pairs_hook=unique_keys)
        except DuplicateKeyError as error:
            raise self.error(str(error)) from None
        except json.JSONDecodeError as error:
            where = f"line {error.lineno:,}, column {error.colno:,}"
            raise self.error(f"not valid JSON: {error.msg}", where) from error
        except RecursionError as error:
            raise self.error("not a label file: its JSON is nested too deeply") from error
        except ValueError as error:  # not UTF-8, or an integer of thousands of digits
            raise self.error(f"not valid JSON: {error}") from error
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror})") from error


class DuplicateKeyError(ValueError):
    """A JSON object has a key twice, so it is not clear which value counts."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict; a key that occurs twice is an error."""
    item = dict(pairs)
    if len(item) < len(pairs):
        names: set[str] = set()
        twice = next(key for key, _ in pairs if key in names or names.add(key))  # type: ignore[func-returns-value]
        raise DuplicateKeyError(f"'{twice}' occurs twice in one object")
    return item


def _is_object_with_key(line: bytes, keys: Iterable[str]) -> bool:
    """Whether a line is a JSON object with at least one of these keys."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and any(key in value for key in keys)


def _split_sheet(path: Path) -> tuple[Path, str | None]:
    """The file and the sheet of ``file.xlsx#sheet``; a file whose name has a # is itself."""
    name, mark, sheet = os.fspath(path).rpartition("#")
    if not mark or path.exists() or not Path(name).is_file():
        return path, None
    return Path(name), sheet
