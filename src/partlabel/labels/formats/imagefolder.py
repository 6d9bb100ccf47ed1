"""The ``hf`` format: the metadata file of an image folder as Hugging Face datasets have it."""

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
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Notes, Stated, only_once
from partlabel.labels.formats.wide import need_classes, read_wide, splits_of, wide_rows

_FILES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


class ImageFolder(Format):
    """``file_name`` and a column a class: 1 present, 0 absent, null unknown.

    Reads a metadata file, a folder with one, or a folder of folders with one each, whose names are
    then the splits.
    """

    name = "hf"
    suffixes = (".jsonl",)
    lists_every_cell = True

    def matches(self, source: Source) -> bool:
        """Metadata files have a column ``file_name``."""
        if source.kind == "folder":
            return bool(_metadata_files(source.path))
        if source.kind == "parquet":
            return "file_name" in source.parquet_columns
        return source.kind == "jsonl" or (source.kind == "text" and "file_name" in source.header)

    def read(self, source: Source) -> Stated:
        """One file, or one file per split."""
        if source.kind != "folder":
            return _read_file(source)
        files = _metadata_files(source.path)
        if not files:
            names = ", ".join(_FILES)
            raise source.error(f"no metadata file ({names}) in the folder or its subfolders")
        if files[0].parent == source.path:
            if len(files) > 1:
                names = " and ".join(path.name for path in files)
                raise source.error(f"the folder has {names}; name the one to read")
            return _read_file(Source(files[0]))
        folders = [path.parent.name for path in files]
        only_once(source, "metadata file of", folders)
        parts = [(folder, _read_file(Source(p))) for folder, p in zip(folders, files, strict=True)]
        torn = [folder for folder, part in parts if part.splits is not None]
        if torn:
            raise source.error(f"the folder '{torn[0]}' is a split, and its file names others")
        return _join(parts)

    def write(self, table: LabelTable, path: Path) -> None:
        """As the file's ending says: .jsonl, .csv or .parquet."""
        header = ["file_name", *(["split"] if table.splits is not None else []), *table.classes]
        need_classes(table)
        taken = [name for name in ("file_name", "split") if name in table.classes]
        if taken:
            raise InputError(f"the hf format keeps the column '{taken[0]}' for itself")
        if path.suffix.lower() == ".csv":
            write_delimited(path, header, _rows(table))
        elif path.suffix.lower() == ".parquet":
            columns = _columns(table)
            with atomic_file(path) as stream:
                pyarrow.parquet.write_table(pa.table(columns), stream)
        elif path.suffix.lower() in (".jsonl", ".ndjson"):
            if not len(table):
                raise InputError(f"{path}: JSON lines cannot hold a table without images")
            words = {"1": 1, "0": 0, "": None}
            first = len(header) - len(table.classes)
            with atomic_file(path) as stream:
                for row in _rows(table):
                    values = [*row[:first], *(words[word] for word in row[first:])]
                    record = dict(zip(header, values, strict=True))
                    stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        else:
            raise InputError(f"{path}: name an hf file metadata.jsonl, metadata.csv or .parquet")

    def drops(self, table: LabelTable) -> list[str]:
        """Values alone."""
        return drops_scores(table)


@dataclass(frozen=True)
class JsonLines(Delimited):
    """JSON objects line by line, as columns of text."""

    numbers_of_lines: list[int]

    def lines(self, records: Sequence[int]) -> list[str]:
        """Blank lines count."""
        return [f"line {self.numbers_of_lines[record]:,}" for record in records]


def _read_file(source: Source) -> Stated:
    readers = {"parquet": read_parquet, "jsonl": _read_json_lines, "json": _read_json_lines}
    text = readers.get(source.kind, read_delimited)(source)
    if "file_name" not in text.header:
        raise source.error("no column is called 'file_name'; it names the image of each row")
    only_once(source, "column", text.header)
    image = text.header.index("file_name")
    columns = [i for i, name in enumerate(text.header) if name not in ("file_name", "split")]
    hint = "a label is 1 (present), 0 (absent) or null (unknown); take other columns out"
    stated = read_wide(text, image, columns, ABSENT_OR_PRESENT, hint)
    if "split" in text.header:
        stated.splits = splits_of(text, image, text.header.index("split"), stated)
    return stated


def _read_json_lines(source: Source) -> Delimited:
    records: list[dict[str, Any]] = []
    numbers: list[int] = []
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise source.error(f"not valid JSON: {error}", f"line {number:,}") from error
        if not isinstance(record, dict):
            raise source.error("expected a JSON object {...}", f"line {number:,}")
        records.append(record)
        numbers.append(number)
    header = list(dict.fromkeys(key for record in records for key in record))
    columns = []
    for name in header:
        try:
            values = pa.array([_text(record.get(name)) for record in records], pa.string())
        except UnicodeEncodeError as error:
            raise source.error(f"column '{name}' holds invalid text: {error}") from error
        columns.append(values.dictionary_encode())
    return JsonLines(source, header, columns, numbers)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"'{twice}' is there twice")
    return found


def _text(value: object) -> str:
    """A JSON value as a text file would have it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return str(value)


def _metadata_files(folder: Path) -> list[Path]:
    for places in ([folder], sorted(path for path in folder.iterdir() if path.is_dir())):
        files = [place / name for place in places for name in _FILES if (place / name).is_file()]
        if files:
            return files
    return []


def _join(parts: list[tuple[str, Stated]]) -> Stated:
    """Several files as one; an image's name gets its folder in front."""
    classes = Names(list(dict.fromkeys(name for _, part in parts for name in part.classes)))
    images = [f"{folder}/{name}" for folder, part in parts for name in part.images]
    sizes = [len(part.images) for _, part in parts]
    before = np.cumsum([0, *sizes])
    notes = Notes()
    for folder, part in parts:
        notes.repeated += [f"{folder}/{name}" for name in part.notes.repeated]
    records = np.concatenate([part.record for _, part in parts if part.record is not None])
    part_of = np.repeat(np.arange(len(parts)), [len(part.value) for _, part in parts])

    def where(cells: Sequence[int]) -> list[str]:
        places = []
        for at in cells:
            folder, part = parts[int(part_of[at])]
            places.append(f"{folder}, {part.where([int(records[at])])[0]}")
        return places

    return Stated(
        Names(images),
        classes,
        np.concatenate([part.image + at for (_, part), at in zip(parts, before, strict=False)]),
        np.concatenate([classes.find(part.classes)[part.label] for _, part in parts]),
        np.concatenate([part.value for _, part in parts]),
        where=where,
        splits=Names(
            [folder for (folder, _), n in zip(parts, sizes, strict=True) for _ in range(n)]
        ),
        notes=notes,
    )


def _rows(table: LabelTable) -> Iterator[list[Any]]:
    rows = wide_rows(table, {1: "1", -1: "0", 0: ""})
    if table.splits is None:
        return rows
    return ([row[0], name, *row[1:]] for row, name in zip(rows, table.splits, strict=True))


def _columns(table: LabelTable) -> dict[str, pa.Array]:
    columns = {"file_name": table.ids.plain()}
    if table.splits is not None:
        columns["split"] = table.splits.plain()
    labels = table.dense()
    for j, name in enumerate(table.classes):
        value = labels[:, j]
        columns[name] = pa.array((value > 0).astype(np.int8), mask=value == 0)
    return columns
