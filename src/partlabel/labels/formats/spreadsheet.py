"""Sheets of Excel files (``.xlsx``), turned into text tables.

An Excel file is a zip archive of XML files. Before it is parsed, its size, formulas and merged
cells are checked, and only what was unpacked under these checks is given to the parser.
"""

import csv
import datetime
import io
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from posixpath import join, normpath
from typing import IO
from xml.etree import ElementTree

import python_calamine

from partlabel.base.errors import FileError, InputError, count, one_of

LARGEST = 512 << 20
"""Most bytes that the parts of an Excel file may have when they are unpacked."""

MOST_CELLS = 20_000_000
"""Most cells between the first and the last one of a sheet, empty ones included."""

MAGIC = b"PK\x03\x04"

_FORMULA = re.compile(rb"<(?:\w+:)?f[\s/>]")
_CELL_NAME = re.compile(rb"""\br\s*=\s*["']\s*([A-Za-z]*)([0-9]+)\s*["']""")
_DECLARATION = re.compile(rb"<!(DOCTYPE|ENTITY)")


@dataclass(frozen=True)
class Sheet:
    """The name of a sheet that was read, and how many sheets the file has."""

    name: str
    sheets: int


def write_as_text(path: Path, wanted: str | None, target: IO[bytes], *, shown_as: Path) -> Sheet:
    """Write a sheet as a comma-separated table, with a line per row.

    Args:
        path: the Excel file.
        shown_as: its path in messages.
        wanted: the name of a sheet; None for the first one.
        target: where to write; empty rows become empty lines, so lines have the numbers of rows.
    """
    parts = _unpack(path, shown_as)
    path = shown_as
    paths = _sheet_paths(path, parts)
    try:
        name = next(iter(paths)) if wanted is None else one_of("sheet", wanted, paths)
    except InputError as error:
        raise FileError(path, str(error)) from None
    _check_sheet(path, name, parts[paths[name]])
    rows = _parse(path, name, parts)
    _write(rows, target)
    return Sheet(name, len(paths))


def _unpack(file: Path, path: Path) -> dict[str, bytes]:
    """The parts of a file that hold cells; too much content is an error about ``path``."""
    parts: dict[str, bytes] = {}
    left = LARGEST
    try:
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                is_needed = info.filename.endswith((".xml", ".rels"))
                if info.is_dir() or not is_needed or info.filename.startswith("xl/media/"):
                    continue
                with archive.open(info) as stream:
                    parts[info.filename] = stream.read(left + 1)
                left -= len(parts[info.filename])
                if left < 0:
                    raise FileError(
                        path,
                        f"is larger than {LARGEST >> 20} MiB when it is unpacked; save the sheet "
                        "as CSV",
                    )
    except FileError:
        raise
    except (
        zipfile.BadZipFile, zlib.error, OSError, RuntimeError, NotImplementedError, ValueError,
        EOFError,
    ) as error:  # fmt: skip
        raise FileError(path, f"cannot be read as an Excel file ({error})") from error
    if "xl/workbook.xml" not in parts:
        raise FileError(
            path, "is a zip archive, but not an Excel file; unpack it and give the label file in it"
        )
    return parts


def _xml(path: Path, part: str, parts: dict[str, bytes]) -> ElementTree.Element:
    content = parts.get(part, b"")
    if _DECLARATION.search(content):
        raise FileError(path, f"{part} declares entities or a document type")
    try:
        return ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise FileError(path, f"cannot be read as an Excel file ({part}: {error})") from error


def _sheet_paths(path: Path, parts: dict[str, bytes]) -> dict[str, str]:
    """For each sheet, in the order of the file, the part that holds its cells."""
    links = {
        link.get("Id"): normpath(join("/xl", link.get("Target", "")))[1:]
        for link in _xml(path, "xl/_rels/workbook.xml.rels", parts)
    }
    paths = {}
    for element in _xml(path, "xl/workbook.xml", parts).iter():
        if element.tag.rpartition("}")[2] == "sheet":
            key = next((v for k, v in element.items() if k.rpartition("}")[2] == "id"), None)
            part = links.get(key, "")
            if part in parts and "/worksheets/" in f"/{part}":
                paths[element.get("name", "")] = part
    if not paths:
        raise FileError(path, "is an Excel file without a sheet of cells")
    return paths


def _check_sheet(path: Path, name: str, content: bytes) -> None:
    """Raise an error for formulas, and for cells so far apart that the table would be huge."""
    formula = _FORMULA.search(content)
    if formula:
        cells = _CELL_NAME.findall(content, 0, formula.start())
        at = f" (the first in cell {b''.join(cells[-1]).decode()})" if cells else ""
        raise FileError(
            path,
            f"the sheet '{name}' has formulas{at}; replace them by their values (copy, then paste "
            "special: values), or save the sheet as CSV",
        )
    rows, columns = 0, 0
    for letters, digits in _CELL_NAME.findall(content):
        rows = max(rows, int(digits[:9]))
        columns = max(columns, _column_number(letters[:9]))
    if rows * max(columns, 1) > MOST_CELLS:
        raise FileError(
            path,
            f"the cells of the sheet '{name}' are spread over {rows:,} rows x {columns:,} columns; "
            f"the limit is {MOST_CELLS:,} cells. Delete cells far from the table, or save it as "
            "CSV",
        )


def _column_number(letters: bytes) -> int:
    """The number of a column from its letters: A is 1, Z is 26, AA is 27."""
    number = 0
    for letter in letters.upper():
        number = 26 * number + letter - ord("A") + 1
    return number


def _parse(path: Path, name: str, parts: dict[str, bytes]) -> list[list[str]]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        for part, content in parts.items():
            target.writestr(part, content)
    archive.seek(0)
    try:
        with python_calamine.CalamineWorkbook.from_filelike(archive) as workbook:
            sheet = workbook.get_sheet_by_name(name)
            merged = sheet.merged_cell_ranges or []
            if merged:
                (row, column), _ = merged[0]
                raise FileError(
                    path,
                    f"the sheet '{name}' has {count(len(merged), 'group')} of merged cells (the "
                    f"first at row {row + 1:,}, column {column + 1:,}); unmerge them, so that each "
                    "row says all about its image",
                )
            rows = sheet.to_python(skip_empty_area=False)
            return [[_text(value) for value in row] for row in rows]
    except FileError:
        raise
    except Exception as error:
        raise FileError(path, f"the sheet '{name}' cannot be read ({error})") from error


def _text(value: object) -> str:
    """The text that a CSV file would have for a cell; a line break in it becomes a space."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return " ".join(str(value).splitlines()) if isinstance(value, str) else str(value)


def _write(rows: list[list[str]], target: IO[bytes]) -> None:
    width = max(map(len, rows), default=0)
    used = [j for j in range(width) if any(j < len(row) and row[j].strip() for row in rows)]
    text = io.TextIOWrapper(target, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        fields = [row[j] if j < len(row) else "" for j in used]
        writer.writerow(fields if _has_text(fields) else [])
    text.flush()
    text.detach()


def _has_text(fields: Iterable[str]) -> bool:
    return any(field.strip() for field in fields)
