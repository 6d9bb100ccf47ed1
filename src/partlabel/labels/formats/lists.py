"""The ``lists`` format: one row or JSON object per image, with a list of its tags."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partlabel.base.errors import InputError, some
from partlabel.labels import PRESENT, LabelTable, Names
from partlabel.labels.formats.delimited import ABSENT_OR_PRESENT, write_delimited
from partlabel.labels.formats.format import Format
from partlabel.labels.formats.json_lines import read_objects
from partlabel.labels.formats.packing import packed_file, unpacked_suffix
from partlabel.labels.formats.shape import expect
from partlabel.labels.formats.source import IMAGE_NAMES, Source
from partlabel.labels.formats.stated import Notes, Stated
from partlabel.labels.formats.tag_tables import SEPARATORS, TAG_NAMES, TagTable, tag_table
from partlabel.labels.formats.tags import (
    Tagging,
    drops_of_tags,
    ignored_columns,
    tags_of_images,
)
from partlabel.labels.formats.wide import splits_of

_SAMPLED_OBJECTS = 50


class Lists(Format):
    """``image,[split,]tags`` with several tags in a cell, or JSON lines with a list.

    In a cell, tags are separated by ``;``, ``|`` or ``,``, or they are a JSON list. An empty cell
    or list belongs to an image without tags. Other columns are ignored.
    """

    name = "lists"
    lists_only_present = True
    has_free_names = True

    def matches(self, source: Source) -> bool:
        """Whether a column of tags holds lists, or JSON lines have a list of tags."""
        if source.kind == "jsonl":
            return holds_lists(source)
        table = tag_table(source)
        if table is None or table.is_wide:
            return False
        return "lists" in table.kinds

    def read(self, source: Source) -> Stated:
        """One statement per tag of an image."""
        if source.kind in ("jsonl", "json"):
            return _read_objects(source)
        table = tag_table(source, forced=True)
        assert table is not None
        return _read_table(table)

    def write(self, table: LabelTable, path: Path) -> None:
        """Write JSON lines if the suffix is .jsonl, else a table with lists in cells.

        The lists are separated by semicolons, or JSON if a class contains a separator.
        """
        if unpacked_suffix(path) in (".jsonl", ".ndjson"):
            _write_json_lines(table, path)
            return
        header = ["image", *(["split"] if table.splits is not None else []), "tags"]
        write_delimited(path, header, _rows(table))

    def drops(self, table: LabelTable) -> list[str]:
        """Absent labels, scores, classes that are never present, and the order of the classes."""
        return drops_of_tags(table)


def holds_lists(source: Source) -> bool:
    """Whether JSON lines have a list of tags, or a tag that is no word for a label."""
    lines = (line for line in source.lines() if line.strip())
    for line in islice(lines, _SAMPLED_OBJECTS):
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            return False
        for name in TAG_NAMES if isinstance(item, dict) else ():
            value = item.get(name)
            if isinstance(value, list):
                return True
            if isinstance(value, str) and value.strip() not in ABSENT_OR_PRESENT:
                return True
    return False


def _read_table(table: TagTable) -> Stated:
    text, separator = table.text, table.separator
    text.reject(table.image, {""}, "an image needs a name")
    cells = text.columns[table.tag].dictionary
    lists = _split_cells(table, cells)
    tags = Tagging.of_names(lists.flatten())
    start, length = lists.offsets.to_numpy()[:-1], lists.value_lengths().to_numpy()
    cell_of_record = text.codes(table.tag)
    # the tags of a record are those at start:start + length of its cell
    number = length[cell_of_record] if len(cells) else np.zeros(0, dtype=np.int64)
    record = np.repeat(np.arange(len(text)), number)
    within = np.arange(len(record)) - np.repeat(np.cumsum(number) - number, number)
    label = tags.label[start[cell_of_record[record]] + within] if len(record) else record
    record, label = record[label >= 0], label[label >= 0]
    stated = Stated(
        Names(text.columns[table.image].dictionary),
        Names(tags.classes),
        text.codes(table.image)[record],
        label,
        np.full(len(record), PRESENT, dtype=np.int8),
        record=record,
        where=text.lines,
        notes=Notes(remarks=_remarks(table, separator, tags)),
    )
    if table.split is not None:
        stated.splits = splits_of(text, table.image, table.split, stated)
    return stated


def _remarks(table: TagTable, separator: str | None, tags: Tagging) -> list[str]:
    remarks = ignored_columns(table.text, table.others)
    if separator == "[":
        return [*remarks, "cells hold JSON lists"]
    if separator is None:
        return remarks
    remarks.append(f"tags in a cell are separated by '{separator}'")
    later = SEPARATORS[SEPARATORS.index(separator) + 1 :]
    other = [name for name in tags.classes.to_pylist() if any(mark in name for mark in later)]
    if other:
        remarks.append(f"tags that contain another separator are not split: {some(other)}")
    return remarks


def _split_cells(table: TagTable, cells: pa.Array) -> pa.Array:
    """The tags in each distinct cell, as an array of lists."""
    if table.separator == "[":
        lists = [_json_list(table, text) for text in cells.to_pylist()]
        return _list_array(table.text.source, lists)
    if table.separator is None:
        return pa.ListArray.from_arrays(pa.array(range(len(cells) + 1), pa.int32()), cells)
    return pc.split_pattern(cells, table.separator)


def _json_list(table: TagTable, text: str) -> list[str]:
    if not text.strip():
        return []
    try:
        tags = json.loads(text)
        if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags):
            return tags
    except (ValueError, RecursionError):
        pass
    table.text.reject(table.tag, {text}, 'write a JSON list of texts, such as ["cat", "dog"]')
    raise AssertionError(text)


def _list_array(source: Source, lists: list[list[str]]) -> pa.Array:
    try:
        return pa.array(lists, pa.list_(pa.string()))
    except UnicodeEncodeError as error:
        raise source.error(f"names must be valid text: {error}") from error


def _read_objects(source: Source) -> Stated:
    """The statements of JSON lines."""
    objects = read_objects(source)
    names: list[str] = []
    lists: list[list[str]] = []
    split_of_image: dict[str, str] = {}
    for line, item in objects:
        name, tags, split = _parse_object(source, line, item)
        if split_of_image.setdefault(name, split) != split:
            raise source.error(f"image '{name}' is in two splits", line)
        names.append(name)
        lists.append(tags)
    tagging = Tagging.of_names(_list_array(source, lists).flatten())
    record = np.repeat(np.arange(len(lists)), [len(tags) for tags in lists])
    label, keep = tagging.label, tagging.label >= 0
    rows = {name: row for row, name in enumerate(split_of_image)}
    row_of_record = np.array([rows[name] for name in names], dtype=np.int64)
    record = record[keep].astype(np.int64)
    locations = [line for line, _ in objects]

    def where(records: Sequence[int]) -> list[str]:
        return [locations[record] for record in records]

    has_splits = any("split" in item for _, item in objects)
    used = {*IMAGE_NAMES, *TAG_NAMES, "split"}
    others = dict.fromkeys(key for _, item in objects for key in item if key not in used)
    remarks = [f"keys that are ignored: {some(others)}"] if others else []
    return Stated(
        Names(list(split_of_image)),
        Names(tagging.classes),
        row_of_record[record],
        label[keep],
        np.full(len(record), PRESENT, dtype=np.int8),
        record=record,
        where=where,
        splits=list(split_of_image.values()) if has_splits else None,
        notes=Notes(remarks=remarks + tagging.remarks()),
    )


def _parse_object(source: Source, line: str, item: dict[str, Any]) -> tuple[str, list[str], str]:
    """Name, tags and split of an image; ``line`` is the location in the file."""
    image_key = next((name for name in IMAGE_NAMES if name in item), None)
    if image_key is None:
        raise source.error("no key holds the name of the image; call it 'image'", line)
    image = expect(source, item[image_key], str, f"{line}, '{image_key}'")
    if not image:
        raise source.error("an image needs a name", line)
    tag_keys = [name for name in TAG_NAMES if item.get(name) is not None]
    if len(tag_keys) > 1:
        names = ",".join(tag_keys[1:])
        message = f"several keys hold tags; leave others out with --ignore-columns {names}"
        raise source.error(message, line)
    tags = item[tag_keys[0]] if tag_keys else []
    if isinstance(tags, str):
        tags = [tags]
    for tag in expect(source, tags, list, f"{line}, '{tag_keys[0] if tag_keys else 'tags'}'"):
        expect(source, tag, str, f"{line}, '{tag_keys[0]}'")
    split = expect(source, item.get("split") or "", str, f"{line}, 'split'")
    return image, tags, split


def _write_json_lines(table: LabelTable, path: Path) -> None:
    if not len(table):
        raise InputError(f"{path}: JSON lines cannot hold a table without images")
    with packed_file(path) as stream:
        for name, split, tags in tags_of_images(table):
            item = {"image": name} | ({"split": split} if split is not None else {})
            stream.write(json.dumps(item | {"tags": tags}, ensure_ascii=False).encode() + b"\n")


def _rows(table: LabelTable) -> Iterator[list[str]]:
    as_json = any(
        name.startswith("[") or any(mark in name for mark in SEPARATORS) for name in table.classes
    )
    for name, split, tags in tags_of_images(table):
        cell = json.dumps(tags, ensure_ascii=False) if as_json else ";".join(tags)
        yield [name, cell] if split is None else [name, split, cell]
