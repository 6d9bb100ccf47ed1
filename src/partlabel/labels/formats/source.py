"""A label file or folder on disk; all formats share it, so that the file is examined once."""

import codecs
import csv
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.parquet

from partlabel.base.errors import FileError
from partlabel.labels.formats.formulas import unquoted

LONGEST_LINE = 16 << 20
"""Most bytes in a line of text; a file with a longer one is an error, before it fills memory."""

Kind = Literal["folder", "json", "jsonl", "parquet", "arrow", "xml", "text"]


@dataclass(frozen=True)
class Text:
    """Properties of a text file: its encoding, and whether it contains quotation marks."""

    encoding: str
    quoted: bool


class Source:
    """A label file or folder; its properties are computed when first used, and cached."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = self.file = Path(path)
        try:
            mode = self.path.stat().st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise self.error("is a device, not a label file")
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a pipe can be read only once
                self._spool = tempfile.NamedTemporaryFile()  # noqa: SIM115  # deleted with self
                with self.path.open("rb") as stream:
                    shutil.copyfileobj(stream, self._spool)
                self._spool.flush()
                self.file = Path(self._spool.name)
        except FileNotFoundError:
            raise self.error("there is no such file or folder") from None
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror})") from error
        except ValueError as error:
            raise FileError(repr(os.fspath(path)), f"not a path ({error})") from None
        if self.file.is_file() and self.file.stat().st_size == 0:
            raise self.error("the file is empty")

    def error(self, message: str, where: str = "") -> FileError:
        """An error about this file, with the location in it."""
        return FileError(self.path, message, where)

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
        if self.head.startswith(b"PAR1"):
            return "parquet"
        if self.head.startswith(b"ARROW1"):
            return "arrow"
        start = self.head.removeprefix(codecs.BOM_UTF8).lstrip()
        if start.startswith(b"<"):
            return "xml"
        if not start.startswith((b"{", b"[")):
            return "text"
        if self.path.suffix.lower() in (".jsonl", ".ndjson"):
            return "jsonl"
        first_line = start.split(b"\n", 1)[0]
        return "jsonl" if _is_object_with_key(first_line, "file_name") else "json"

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
        return f"line {lines:,}"

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
                raise self.error(str(error), f"line {line:,}") from error
            if fields:
                yield line, fields
            line = reader.line_num + 1

    @cached_property
    def header(self) -> list[str]:
        """The first record of a text table, without spaces and apostrophes around the names."""
        for _, fields in self.records():
            return [unquoted(field.strip()) for field in fields]
        raise self.error("the file is empty")

    @cached_property
    def parquet_columns(self) -> list[str]:
        """The column names of a Parquet file."""
        try:
            return list(pyarrow.parquet.read_schema(self.for_arrow()).names)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self.error(f"cannot be read as Parquet ({error})") from error

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
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise DuplicateKeyError(f"'{twice}' occurs twice in one object")
    return item


def _is_object_with_key(line: bytes, key: str) -> bool:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and key in value
