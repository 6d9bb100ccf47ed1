"""The ``hf`` format: the metadata file of an image folder, as in Hugging Face datasets."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from partlabel.base.errors import InputError, one_of
from partlabel.labels import Details, LabelTable, Names
from partlabel.labels.cells import concatenate
from partlabel.labels.formats.cell_list import ASKED
from partlabel.labels.formats.delimited import (
    ABSENT_OR_PRESENT,
    Delimited,
    read_delimited,
    write_delimited,
)
from partlabel.labels.formats.format import Format, drops_scores
from partlabel.labels.formats.json_lines import read_objects
from partlabel.labels.formats.lists import holds_lists
from partlabel.labels.formats.packing import packed_file, unpacked_suffix
from partlabel.labels.formats.parquet import read_parquet
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Notes, Stated, only_once
from partlabel.labels.formats.tag_tables import tag_table
from partlabel.labels.formats.wide import need_classes, read_wide, splits_of, wide_rows
from partlabel.labels.table import MOST_ORIGINS, TOO_MANY_ORIGINS

_FILES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
_ORIGINS, _ASKED = "label_origins", "label_asked"  # columns with a JSON object {class: word}
_OTHER_COLUMNS = ("file_name", "split", _ORIGINS, _ASKED)


class ImageFolder(Format):
    """``file_name`` and one column per class: 1 for present, 0 for absent, null for unknown.

    The column ``label_origins`` has the origins of labels, as a JSON object with a name per class.
    ``label_asked`` has in the same form which labels were asked for.

    Reads a metadata file, a folder with a metadata file, or a folder of such folders. In the last
    case the names of the folders are the splits.
    """

    name = "hf"
    suffixes = (".jsonl",)
    lists_every_cell = True
    holds_origins = True

    def matches(self, source: Source) -> bool:
        """Whether there is a column ``file_name``, or a metadata file in the folder."""
        if source.kind == "folder":
            return bool(_metadata_files(source.path))
        if source.kind == "parquet":
            return "file_name" in source.parquet_columns
        if source.kind == "jsonl":
            return not holds_lists(source)
        if source.kind != "text" or "file_name" not in source.header:
            return False
        table = tag_table(source)
        return table is None or table.may_be_wide

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
            return _read_file(source.part(files[0]))
        folders = [path.parent.name for path in files]
        only_once(source, "metadata file of", folders)
        parts = []
        for folder, path in zip(folders, files, strict=True):
            part = _read_file(source.part(path))
            if part.splits is not None:
                raise source.error(
                    f"the folder '{folder}' is a split, but its metadata file has a column 'split'"
                )
            parts.append((folder, part))
        return _join(parts)

    def write(self, table: LabelTable, path: Path) -> None:
        """Write JSON lines, CSV or Parquet, depending on the suffix of the file."""
        need_classes(table)
        reserved = [name for name in _OTHER_COLUMNS if name in table.classes]
        if reserved:
            raise InputError(f"no class can be called '{reserved[0]}' in the hf format")
        suffix = unpacked_suffix(path)
        if suffix in (".csv", ".tsv"):
            write_delimited(path, _header(table), _rows(table))
        elif suffix == ".parquet":
            columns = _columns(table)
            with packed_file(path) as stream:
                pyarrow.parquet.write_table(pa.table(columns), stream)
        elif suffix in (".jsonl", ".ndjson"):
            _write_json_lines(table, path)
        else:
            raise InputError(
                f"{path}: a file of the hf format is called metadata.jsonl, metadata.csv or "
                "metadata.parquet"
            )

    def drops(self, table: LabelTable) -> list[str]:
        """Scores."""
        return drops_scores(table)


@dataclass(frozen=True)
class JsonLines(Delimited):
    """A table of JSON objects, one per line, as columns of text."""

    locations: list[str]

    def lines(self, records: Sequence[int]) -> list[str]:
        """The lines of records in the file, counting blank lines."""
        return [self.locations[record] for record in records]


def _read_file(source: Source) -> Stated:
    readers = {"parquet": read_parquet, "jsonl": _read_json_lines, "json": _read_json_lines}
    text = readers.get(source.kind, read_delimited)(source)
    if "file_name" not in text.header:
        raise source.error("no column is called 'file_name', the column with the images")
    only_once(source, "column", text.header)
    image = text.header.index("file_name")
    columns = [i for i, name in enumerate(text.header) if name not in _OTHER_COLUMNS]
    hint = "a label is 1 (present), 0 (absent) or null (unknown)"
    stated = read_wide(text, image, columns, ABSENT_OR_PRESENT, hint)
    if "split" in text.header:
        stated.splits = splits_of(text, image, text.header.index("split"), stated)
    if _ORIGINS in text.header:
        words = _words_per_statement(text, _ORIGINS, stated)
        origins = [word for word in dict.fromkeys(words) if word]
        if len(origins) > MOST_ORIGINS:
            raise source.error(TOO_MANY_ORIGINS)
        codes = Names(["", *origins]).find(words).astype(np.uint8)
        stated.origins, stated.details = origins, replace(stated.details, origins=codes)
    if _ASKED in text.header:
        words = _words_per_statement(text, _ASKED, stated)
        for word in dict.fromkeys(words):
            one_of("kind of question", word, ASKED)
        asked = np.array([ASKED[word] for word in words], dtype=np.int8)
        stated.details = replace(stated.details, asked=asked)
    return stated


def _words_per_statement(text: Delimited, name: str, stated: Stated) -> list[str]:
    """The word for the class of each statement, from a column of JSON objects."""
    column = text.column(name)
    parsed: list[dict[str, str]] = []
    for code, value in enumerate(text.values(column)):
        try:
            words = json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            words = None
        if not isinstance(words, dict) or not all(isinstance(w, str) for w in words.values()):
            where = text.line(int(np.flatnonzero(text.codes(column) == code)[0]))
            message = f"'{name}' must be a JSON object with a text for each class"
            raise text.source.error(message, where)
        parsed.append(words)
    assert stated.record is not None  # a row has statements about many classes
    codes, classes = text.codes(column)[stated.record].tolist(), list(stated.classes)
    labels = stated.label.tolist()
    return [parsed[code].get(classes[label], "") for code, label in zip(codes, labels, strict=True)]


def _read_json_lines(source: Source) -> Delimited:
    objects = read_objects(source)
    for line, record in objects:
        for name in _OTHER_COLUMNS:
            if not isinstance(record.get(name), str | None):
                raise source.error(f"'{name}' must be a text, found {record[name]!r}", line)
    records = [record for _, record in objects]
    header = list(dict.fromkeys(key for record in records for key in record))
    columns = []
    for name in header:
        try:
            values = pa.array([_text(record.get(name)) for record in records], pa.string())
        except UnicodeEncodeError as error:
            raise source.error(f"column '{name}' holds invalid text: {error}") from error
        columns.append(values.dictionary_encode())
    return JsonLines(source, header, columns, [line for line, _ in objects])


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

    origins = Names(list(dict.fromkeys(name for _, part in parts for name in part.origins)))
    return Stated(
        Names(images),
        classes,
        np.concatenate(
            [part.image + first for (_, part), first in zip(parts, first_rows, strict=True)]
        ),
        np.concatenate([classes.find(part.classes)[part.label] for _, part in parts]),
        np.concatenate([part.value for _, part in parts]),
        concatenate(
            [_with_origins(part, origins) for _, part in parts],
            [len(part.value) for _, part in parts],
        ),
        where=where,
        origins=origins,
        splits=Names(
            [folder for (folder, _), size in zip(parts, sizes, strict=True) for _ in range(size)]
        ),
        notes=notes,
    )


def _with_origins(part: Stated, origins: Names) -> Details:
    """The details of a part, with positions in these origins."""
    if part.details.origins is None:
        return part.details
    if len(origins) > MOST_ORIGINS:
        raise InputError(TOO_MANY_ORIGINS)
    codes = np.concatenate([[0], origins.find(part.origins) + 1]).astype(np.uint8)
    return replace(part.details, origins=codes[part.details.origins])


def _write_json_lines(table: LabelTable, path: Path) -> None:
    if not len(table):
        raise InputError(f"{path}: JSON lines cannot hold a table without images")
    values = {"1": 1, "0": 0, "": None}
    with packed_file(path) as stream:
        for row in _rows(table):
            first_label = len(row) - len(table.classes)
            fields = [*row[:first_label], *(values[word] for word in row[first_label:])]
            record = dict(zip(_header(table), fields, strict=True))
            stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


def _header(table: LabelTable) -> list[str]:
    return ["file_name", *_other_columns(table), *table.classes]


def _rows(table: LabelTable) -> Iterator[list[Any]]:
    columns = _other_columns(table).values()
    rows = wide_rows(table, {1: "1", -1: "0", 0: ""})
    for row, *others in zip(rows, *columns, strict=True):
        yield [row[0], *others, *row[1:]]


def _columns(table: LabelTable) -> dict[str, pa.Array]:
    columns = {"file_name": table.ids.plain()}
    for name, texts in _other_columns(table).items():
        columns[name] = pa.array(texts, pa.large_string())
    labels = table.dense()
    for j, name in enumerate(table.classes):
        value = labels[:, j]
        columns[name] = pa.array((value > 0).astype(np.int8), mask=value == 0)
    return columns


def _other_columns(table: LabelTable) -> dict[str, list[str]]:
    """The columns between the image and the labels, with a text for each image."""
    columns, details = {}, table.cells.details
    if table.splits is not None:
        columns["split"] = list(table.splits)
    if details.origins is not None:
        columns[_ORIGINS] = _json_objects(table, ["", *table.origins], details.origins)
    if details.asked is not None:
        columns[_ASKED] = _json_objects(table, list(ASKED), details.asked)
    return columns


def _json_objects(table: LabelTable, words: list[str], codes: NDArray[Any]) -> list[str]:
    """For each image a JSON object with the words of its classes; empty if no class has one."""
    objects: list[dict[str, str]] = [{} for _ in range(len(table))]
    used = np.flatnonzero(codes)
    rows, columns = table.cells.rows[used].tolist(), table.cells.columns[used].tolist()
    classes = list(table.classes)
    for row, column, code in zip(rows, columns, codes[used].tolist(), strict=True):
        objects[row][classes[column]] = words[code]
    return [json.dumps(item, ensure_ascii=False) if item else "" for item in objects]
