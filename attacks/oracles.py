"""Readers of label files that are as simple as the documentation allows: what files really say.

Each returns the known labels, by image and class. ``Refused`` means that partlabel must refuse the
file too; ``Unclear`` means that the documentation does not say what the file means.
"""

import codecs
import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any
from xml.dom import minidom
from xml.etree import ElementTree

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
    header = [name.strip() for name in records[0]]
    _require(all(len(record) == len(header) for record in records))
    return header, records[1:]


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
    """``image,class,value,score,source``; a human's label counts more than a model's."""
    header, records = _table(content)
    _require(all(header.count(name) == 1 for name in ("image", "class", "value")))
    rows = [dict(zip(header, record, strict=True)) for record in records]
    for row in rows:
        score = row.get("score", "").strip()
        _require(not score or (_NUMBER.fullmatch(score) and 0 <= float(score) <= 1))
        _require(row.get("source", "").strip() in ("", "human", "model"))
    statements = []
    for row in rows:
        image, name, value = row["image"], row["class"].strip(), _word(row["value"])
        if image and name:
            statements.append((image, name, value, row.get("source", "").strip() == "model"))
        else:  # the name of an image or of a class, without a label
            _require((image or name) and not value and not row.get("score", "").strip())
    human = {(image, name) for image, name, value, model in statements if value and not model}
    return _collect(
        (image, name, 0 if model and (image, name) in human else value)
        for image, name, value, model in statements
    )


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


_IMAGE = [
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
]
_TAG = ["tag", "label", "class", "category", "tags", "labels", "classes", "categories", "keywords"]


def _tag_rows(content: bytes) -> list[tuple[str, str]]:
    """Image and cell of tags of each record."""
    header, records = _table(content)
    lower = [name.lower() for name in header]
    images = [lower.index(name) for name in _IMAGE if name in lower]
    tags = [i for i, name in enumerate(lower) if name in _TAG]
    _require(images and len(tags) == 1)
    image, split = images[0], lower.index("split") if "split" in lower else None
    splits: dict[str, str] = {}
    for record in records:
        _require(record[image])
        if split is not None:
            _require(splits.setdefault(record[image], record[split]) == record[split])
    return [(record[image], record[tags[0]]) for record in records]


def _trim(text: str) -> str:
    """Without blanks at both ends; what counts as one besides the usual ones is not documented."""
    if text.strip() != text.strip(" \t\r\n"):
        raise Unclear
    return text.strip()


def read_tags(content: bytes) -> Labels:
    """``image,[split,]tag``."""
    return _collect((image, _trim(tag), 1) for image, tag in _tag_rows(content) if _trim(tag))


def read_lists(content: bytes) -> Labels:
    """Lists in cells or in JSON lines."""
    text = _text(content)
    if text.lstrip().startswith(("{", "[")):
        return _listed_objects(text)
    rows = _tag_rows(content)
    cells = [_trim(cell) for _, cell in rows if _trim(cell)]
    statements: list[tuple[str, str, int]] = []
    is_json = bool(cells) and all(cell[0] == "[" and cell[-1] == "]" for cell in cells)
    if any("\n" in cell or "\r" in cell for cell in cells):
        raise Unclear
    mark = next((m for m in ";|," if any(m in cell for cell in cells)), None)
    for image, cell in rows:
        parts: Any = [cell] if mark is None else cell.split(mark)
        if is_json:
            parts = _json(cell) if _trim(cell) else []
            _require(isinstance(parts, list) and all(isinstance(part, str) for part in parts))
        statements += [(image, _trim(part), 1) for part in parts if _trim(part)]
    return _collect(statements)


def _listed_objects(text: str) -> Labels:
    statements: list[tuple[str, str, int]] = []
    splits: dict[str, str] = {}
    for line in re.split("\r\n|\r|\n", text):
        if not line.strip():
            continue
        item = _json(line)
        _require(isinstance(item, dict))
        images = [item[name] for name in _IMAGE if name in item]
        tags = [item[name] for name in _TAG if item.get(name) is not None]
        _require(images and isinstance(images[0], str) and images[0] and len(tags) < 2)
        split = item.get("split") or ""
        _require(isinstance(split, str) and splits.setdefault(images[0], split) == split)
        names = tags[0] if tags else []
        names = [names] if isinstance(names, str) else names
        _require(isinstance(names, list) and all(isinstance(name, str) for name in names))
        statements += [(images[0], _trim(name), 1) for name in names if _trim(name)]
    return _collect(statements)


def read_names(content: bytes) -> Labels:
    """A name per line: nothing is known."""
    _text(content)
    return {}


def read_cvat(content: bytes) -> Labels:
    """Tags and shapes of images are present."""
    try:
        root = minidom.parseString(content).documentElement
    except Exception:
        raise Refused from None
    _require(root is not None and root.tagName == "annotations")
    statements: list[tuple[str, str, int]] = []
    images: set[str] = set()
    for image in root.childNodes if root is not None else ():
        if not isinstance(image, minidom.Element) or image.tagName != "image":
            continue
        name = image.getAttribute("name")
        _require(name and name not in images)
        images.add(name)
        items = [item for item in image.childNodes if isinstance(item, minidom.Element)]
        statements += [(name, item.getAttribute("label").strip(), 1) for item in items]
    return _collect(statements)


def unpacked(content: bytes) -> bytes:
    """The text in a compressed file or in a sheet; other content is returned as it is."""
    try:
        if content.startswith(b"\x1f\x8b"):
            return gzip.decompress(content)
        if content.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                return _sheet(archive.read("xl/worksheets/sheet1.xml"))
    except Unclear:
        raise
    except Exception:
        raise Unclear from None
    return content


def _sheet(content: bytes) -> bytes:
    """A sheet of texts in the first three columns as CSV; anything else is unclear."""
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    lines = []
    for number, row in enumerate(ElementTree.fromstring(content)[0], start=1):
        fields = ["", "", ""]
        if row.tag != f"{space}row" or row.get("r") != str(number):
            raise Unclear
        for cell in row:
            name, tags = cell.get("r", ""), [item.tag for item in cell.iter()]
            value = "".join(cell.itertext())
            position = "ABC".index(name[0])
            is_plain = tags == [f"{space}{tag}" for tag in ("c", "is", "t")]
            is_plain = is_plain and name[1:] == str(number)
            is_plain = is_plain and (cell[0][0].text or "") == value
            is_odd = re.search(r"[^ -~]", value) or "_x" in value or value != value.strip()
            if cell.get("t") != "inlineStr" or not is_plain or is_odd or fields[position]:
                raise Unclear
            fields[position] = value
        lines.append(fields if any(fields) else [])
    if not all(any(fields[i] for fields in lines if fields) for i in range(3)):
        raise Unclear
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    return text.getvalue().encode()


def _plain(value: object) -> str:
    if value is None or isinstance(value, bool | str):
        return "" if value is None else str(int(value)) if isinstance(value, bool) else value
    return json.dumps(value)


ORACLES: dict[str, Callable[[bytes], Labels]] = {
    "csv": read_csv,
    "cells": read_cells,
    "tags": read_tags,
    "lists": read_lists,
    "names": read_names,
    "cvat": read_cvat,
    "open-images": read_open_images,
    "coco": read_coco,
    "lvis": read_lvis,
    "hf": read_hf,
}
