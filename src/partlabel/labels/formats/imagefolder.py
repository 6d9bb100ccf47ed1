"""The ``hf`` format: the metadata file of an image folder, as in Hugging Face datasets."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from partlabel.base.errors import InputError
from partlabel.base.files import atomic_file
from partlabel.labels import LabelTable, Names
from partlabel.labels.formats.delimited import (
    ABSENT_OR_PRESENT,
    Delimited,
    read_delimited,
    write_delimited,
)
from partlabel.labels.formats.format import Format, drops_scores
from partlabel.labels.formats.parquet import read_parquet
from partlabel.labels.formats.source import Source, unique_keys
from partlabel.labels.formats.stated import Notes, Stated, only_once
from partlabel.labels.formats.wide import need_classes, read_wide, splits_of, wide_rows

_FILES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


class ImageFolder(Format):
    """``file_name`` and one column per class: 1 for present, 0 for absent, null for unknown.

    Reads a metadata file, a folder with a metadata file, or a folder of such folders. In the last
    case the names of the folders are the splits.
    """

    name = "hf"
    suffixes = (".jsonl",)
    lists_every_cell = True

    def matches(self, source: Source) -> bool:
        """Whether there is a column ``file_name``, or a metadata file in the folder."""
        if source.kind == "folder":
            return bool(_metadata_files(source.path))
        if source.kind == "parquet":
            return "file_name" in source.parquet_columns
        return source.kind == "jsonl" or (source.kind == "text" and "file_name" in source.header)

    def read(self, source: Source) -> Stated:
        """The labels of each image, from one file or from one file per split."""
        if source.kind != "folder":
            return _read_file(source)
        files = _metadata_files(source.path)
        if not files:
            names = ", ".join(_FILES)
            raise source.error(f"no metadata file ({names}) in the folder or its subfolders")
        if files[0].parent == source.path:
            if len(files) > 1:
                names = " and ".join(path.name for path in files)
                raise source.error(f"the folder has {names}; give the path of the one to read")
            return _read_file(Source(files[0]))
        folders = [path.parent.name for path in files]
        only_once(source, "metadata file of", folders)
        parts = []
        for folder, path in zip(folders, files, strict=True):
            part = _read_file(Source(path))
            if part.splits is not None:
                raise source.error(
                    f"the folder '{folder}' is a split, but its metadata file has a column 'split'"
                )
            parts.append((folder, part))
        return _join(parts)

    def write(self, table: LabelTable, path: Path) -> None:
        """Write JSON lines, CSV or Parquet, depending on the suffix of the file."""
        need_classes(table)
        reserved = [name for name in ("file_name", "split") if name in table.classes]
        if reserved:
            raise InputError(f"no class can be called '{reserved[0]}' in the hf format")
        suffix = path.suffix.lower()
        if self.writes_text_table(path):
            write_delimited(path, _header(table), _rows(table))
        elif suffix == ".parquet":
            columns = _columns(table)
            with atomic_file(path) as stream:
                pyarrow.parquet.write_table(pa.table(columns), stream)
        elif suffix in (".jsonl", ".ndjson"):
            _write_json_lines(table, path)
        else:
            raise InputError(
                f"{path}: a file of the hf format is called metadata.jsonl, metadata.csv or "
                "metadata.parquet"
            )

    def writes_text_table(self, path: Path) -> bool:
        """Only with the suffix .csv."""
        return path.suffix.lower() == ".csv"

    def drops(self, table: LabelTable) -> list[str]:
        """Scores."""
        return drops_scores(table)


@dataclass(frozen=True)
class JsonLines(Delimited):
    """A table of JSON objects, one per line, as columns of text."""

    line_numbers: list[int]

    def lines(self, records: Sequence[int]) -> list[str]:
        """The lines of records in the file, counting blank lines."""
        return [f"line {self.line_numbers[record]:,}" for record in records]


def _read_file(source: Source) -> Stated:
    readers = {"parquet": read_parquet, "jsonl": _read_json_lines, "json": _read_json_lines}
    text = readers.get(source.kind, read_delimited)(source)
    if "file_name" not in text.header:
        raise source.error("no column is called 'file_name', the column with the images")
    only_once(source, "column", text.header)
    image = text.header.index("file_name")
    columns = [i for i, name in enumerate(text.header) if name not in ("file_name", "split")]
    hint = "a label is 1 (present), 0 (absent) or null (unknown); remove other columns"
    stated = read_wide(text, image, columns, ABSENT_OR_PRESENT, hint)
    if "split" in text.header:
        stated.splits = splits_of(text, image, text.header.index("split"), stated)
    return stated


def _read_json_lines(source: Source) -> Delimited:
    records: list[dict[str, Any]] = []
    line_numbers: list[int] = []
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            raise source.error(f"not valid JSON: {error}", f"line {number:,}") from error
        if not isinstance(record, dict):
            raise source.error("expected a JSON object {...}", f"line {number:,}")
        for name in ("file_name", "split"):
            if not isinstance(record.get(name), str | None):
                message = f"'{name}' must be a text, found {record[name]!r}"
                raise source.error(message, f"line {number:,}")
        records.append(record)
        line_numbers.append(number)
    header = list(dict.fromkeys(key for record in records for key in record))
    columns = []
    for name in header:
        try:
            values = pa.array([_text(record.get(name)) for record in records], pa.string())
        except UnicodeEncodeError as error:
            raise source.error(f"column '{name}' holds invalid text: {error}") from error
        columns.append(values.dictionary_encode())
    return JsonLines(source, header, columns, line_numbers)


def _text(value: object) -> str:
    """A JSON value as the text that a CSV file would have."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return str(value)


def _metadata_files(folder: Path) -> list[Path]:
    """The metadata files in a folder; if there are none, those in its subfolders."""
    subfolders = sorted(path for path in folder.iterdir() if path.is_dir())
    for folders in ([folder], subfolders):
        paths = [parent / name for parent in folders for name in _FILES]
        files = [path for path in paths if path.is_file()]
        if files:
            return files
    return []


def _join(parts: list[tuple[str, Stated]]) -> Stated:
    """The statements of several folders as one; the folder becomes part of an image's name."""
    classes = Names(list(dict.fromkeys(name for _, part in parts for name in part.classes)))
    images = [f"{folder}/{name}" for folder, part in parts for name in part.images]
    sizes = [len(part.images) for _, part in parts]
    first_rows = np.cumsum([0, *sizes[:-1]])
    notes = Notes()
    for folder, part in parts:
        notes.repeated += [f"{folder}/{name}" for name in part.notes.repeated]
    records = np.concatenate([part.record for _, part in parts if part.record is not None])
    part_of_statement = np.repeat(np.arange(len(parts)), [len(part.value) for _, part in parts])

    def where(statements: Sequence[int]) -> list[str]:
        locations = []
        for statement in statements:
            folder, part = parts[int(part_of_statement[statement])]
            location = part.where([int(records[statement])])[0]
            locations.append(f"{folder}, {location}")
        return locations

    return Stated(
        Names(images),
        classes,
        np.concatenate(
            [part.image + first for (_, part), first in zip(parts, first_rows, strict=True)]
        ),
        np.concatenate([classes.find(part.classes)[part.label] for _, part in parts]),
        np.concatenate([part.value for _, part in parts]),
        where=where,
        splits=Names(
            [folder for (folder, _), size in zip(parts, sizes, strict=True) for _ in range(size)]
        ),
        notes=notes,
    )


def _write_json_lines(table: LabelTable, path: Path) -> None:
    if not len(table):
        raise InputError(f"{path}: JSON lines cannot hold a table without images")
    header, values = _header(table), {"1": 1, "0": 0, "": None}
    first_label = len(header) - len(table.classes)
    with atomic_file(path) as stream:
        for row in _rows(table):
            fields = [*row[:first_label], *(values[word] for word in row[first_label:])]
            record = dict(zip(header, fields, strict=True))
            stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


def _header(table: LabelTable) -> list[str]:
    return ["file_name", *(["split"] if table.splits is not None else []), *table.classes]


def _rows(table: LabelTable) -> Iterator[list[Any]]:
    rows = wide_rows(table, {1: "1", -1: "0", 0: ""})
    if table.splits is None:
        return rows
    return ([row[0], split, *row[1:]] for row, split in zip(rows, table.splits, strict=True))


def _columns(table: LabelTable) -> dict[str, pa.Array]:
    columns = {"file_name": table.ids.plain()}
    if table.splits is not None:
        columns["split"] = table.splits.plain()
    labels = table.dense()
    for j, name in enumerate(table.classes):
        value = labels[:, j]
        columns[name] = pa.array((value > 0).astype(np.int8), mask=value == 0)
    return columns
