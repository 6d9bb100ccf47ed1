"""Readers of label files that are as simple as the documentation allows: what files really say.

Each returns the known labels, by image and class. ``Refused`` means that partlabel must refuse the
file too; ``Unclear`` means that the documentation does not say what the file means.
"""

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

Labels = dict[tuple[str, str], int]

WORDS = {"1": 1, "1.0": 1, "0": -1, "0.0": -1, "": 0, "nan": 0, "NaN": 0, "NA": 0, "null": 0}
for _spelling, _value in (("yes", 1), ("true", 1), ("no", -1), ("false", -1)):
    WORDS |= {_spelling: _value, _spelling.capitalize(): _value, _spelling.upper(): _value}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Refused(Exception):  # noqa: N818
    """The documentation calls this an error."""


class Unclear(Exception):  # noqa: N818
    """The documentation does not define what this means."""


def _require(condition: object) -> None:
    if not condition:
        raise Refused


def _collect(statements: Iterable[tuple[str, str, int]]) -> Labels:
    labels: Labels = {}
    for image, name, value in statements:
        _require(image)
        _require(name)
        if value:
            _require(labels.setdefault((image, name), value) == value)
    return labels


def _text(content: bytes) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return content.decode("utf-16")
        except UnicodeDecodeError:
            raise Refused from None
    _require(b"\0" not in content)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _table(content: bytes) -> tuple[list[str], list[list[str]]]:
    text = _text(content)
    first = next((line for line in re.split("[\r\n]", text) if line.strip()), "")
    delimiter = min((mark for mark in ",;\t" if mark in first), key=first.find, default=",")
    # a quotation mark inside a field, or text after a closing one: readers of CSV differ
    bare = re.sub(r'"(?:[^"]|"")*"', "", text)
    quoted = re.findall(rf'(?:^|[\r\n{delimiter}])"(?:[^"]|"")*"(?=[\r\n{delimiter}]|$)', text)
    if '"' in bare or len(quoted) != len(re.findall(r'"(?:[^"]|"")*"', text)):
        raise Unclear
    records = [r for r in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if r]
    _require(records)
    header = [_unquoted(name.strip()) for name in records[0]]
    _require(all(len(record) == len(header) for record in records))
    return header, [[_unquoted(field) for field in record] for record in records[1:]]


def _unquoted(text: str) -> str:
    """Without the apostrophe that keeps a spreadsheet from running a formula."""
    rest = text.lstrip("'")
    return (
        text[1:]
        if rest != text and rest[:1] in tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
        else text
    )


def _word(text: str) -> int:
    _require(text.strip() in WORDS)
    return WORDS[text.strip()]


def _wide(header: list[str], records: list[list[str]], image: int, split: int | None) -> Labels:
    columns = [i for i in range(len(header)) if i not in (image, split)]
    _require(columns and all(header[i] for i in columns))
    names = [header[i] for i in columns]
    _require(len(set(names)) == len(names))
    if split is not None:
        splits: dict[str, str] = {}
        for record in records:
            _require(splits.setdefault(record[image], record[split]) == record[split])
    _require(all(record[image] for record in records))
    return _collect((r[image], header[i], _word(r[i])) for r in records for i in columns)


def read_csv(content: bytes) -> Labels:
    """``image,[split,]class...``."""
    header, records = _table(content)
    split = header.index("split") if "split" in header[1:] else None
    return _wide(header, records, 0, split)


def read_cells(content: bytes) -> Labels:
    """``image,class,value,score,source``."""
    header, records = _table(content)
    _require(all(header.count(name) == 1 for name in ("image", "class", "value")))
    rows = [dict(zip(header, record, strict=True)) for record in records]
    for row in rows:
        score = row.get("score", "").strip()
        _require(not score or (_NUMBER.fullmatch(score) and 0 <= float(score) <= 1))
        _require(row.get("source", "").strip() in ("", "human", "model"))
    return _collect((row["image"], row["class"].strip(), _word(row["value"])) for row in rows)


def read_open_images(content: bytes) -> Labels:
    """``ImageID,Source,LabelName,Confidence``."""
    header, records = _table(content)
    needed = ("ImageID", "LabelName", "Confidence")
    _require(all(header.count(name) == 1 for name in needed))
    statements = []
    for record in records:
        image, name, word = (record[header.index(column)].strip() for column in needed)
        _require(_NUMBER.fullmatch(word))
        number = Decimal(word)
        _require(0 <= number <= 1)
        image = record[header.index("ImageID")]
        statements.append((image, name, 1 if number == 1 else -1 if number == 0 else 0))
    return _collect(statements)


def _json(content: bytes | str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _require(len(dict(pairs)) == len(pairs))
        return dict(pairs)

    try:
        return json.loads(content, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise Refused from None


def _annotated(content: bytes, negatives: bool) -> tuple[dict[Any, str], dict[Any, str], Labels]:
    try:
        document = _json(content)
        images = {
            image["id"]: image["file_name"]
            if "file_name" in image
            else image["coco_url"].rsplit("/", 1)[-1]
            for image in document["images"]
        }
        classes = {item["id"]: item["name"].strip() for item in document["categories"]}
        for items, names in ((document["images"], images), (document["categories"], classes)):
            _require(len(set(names.values())) == len(items))  # neither ids nor names twice
            _require(all(type(key) in (int, str) and type(names[key]) is str for key in names))
        keys = [(item["image_id"], item["category_id"], 1) for item in document["annotations"]]
        for image in document["images"] if negatives else ():
            keys += [(image["id"], key, -1) for key in image.get("neg_category_ids", [])]
        _require(all(type(key) in (int, str) for pair in keys for key in pair[:2]))
        return images, classes, _collect((images[i], classes[c], value) for i, c, value in keys)
    except (KeyError, TypeError, AttributeError):
        raise Refused from None


def read_coco(content: bytes) -> Labels:
    """Annotated classes are present."""
    return _annotated(content, negatives=False)[2]


def read_lvis(content: bytes) -> Labels:
    """Annotated classes are present, ``neg_category_ids`` absent."""
    return _annotated(content, negatives=True)[2]


def read_hf(content: bytes) -> Labels:
    """JSON lines with ``file_name`` and one key per class."""
    records = [_json(line) for line in re.split("\r\n|\r|\n", _text(content)) if line.strip()]
    _require(all(isinstance(record, dict) for record in records))
    header = list(dict.fromkeys(key for record in records for key in record))
    _require("file_name" in header)
    for record in records:
        texts = (record.get("file_name"), record.get("split"))
        _require(all(isinstance(text, str | None) for text in texts))
    rows = [[_plain(record.get(name)) for name in header] for record in records]
    split = header.index("split") if "split" in header else None
    return _wide(header, rows, header.index("file_name"), split)


def _plain(value: object) -> str:
    if value is None or isinstance(value, bool | str):
        return "" if value is None else str(int(value)) if isinstance(value, bool) else value
    return json.dumps(value)


ORACLES: dict[str, Callable[[bytes], Labels]] = {
    "csv": read_csv,
    "cells": read_cells,
    "open-images": read_open_images,
    "coco": read_coco,
    "lvis": read_lvis,
    "hf": read_hf,
}
