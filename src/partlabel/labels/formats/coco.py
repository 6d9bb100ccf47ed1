"""COCO's and LVIS' JSON: images, categories, annotations."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from partlabel.base.files import atomic_file
from partlabel.labels import ABSENT, PRESENT, LabelTable, Names
from partlabel.labels.formats.format import Format, drops_absent, drops_scores, drops_splits
from partlabel.labels.formats.shape import expect, member, objects
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated, only_once


class Coco(Format):
    """An image has the classes that are annotated in it; of the others the file says nothing."""

    name = "coco"
    lists_only_present = True

    def matches(self, source: Source) -> bool:
        """A document with images, categories and annotations, and no LVIS fields."""
        return _is_coco(source) and not _has_lvis_fields(source)

    def read(self, source: Source) -> Stated:
        """An image is called by its file name."""
        return _read(source, with_absent=False)

    def write(self, table: LabelTable, path: Path) -> None:
        """Annotations say that a class is there, without saying where."""
        _write(table, path, with_absent=False)

    def drops(self, table: LabelTable) -> list[str]:
        """Only what is present."""
        return drops_absent(table) + drops_scores(table) + drops_splits(table)


class Lvis(Format):
    """As COCO, and each image lists the classes that are known to be absent."""

    name = "lvis"

    def matches(self, source: Source) -> bool:
        """Images have ``neg_category_ids``."""
        return _is_coco(source) and _has_lvis_fields(source)

    def read(self, source: Source) -> Stated:
        """Classes in ``neg_category_ids`` are absent."""
        return _read(source, with_absent=True)

    def write(self, table: LabelTable, path: Path) -> None:
        """Annotations say that a class is there, without saying where."""
        _write(table, path, with_absent=True)

    def drops(self, table: LabelTable) -> list[str]:
        """Values alone."""
        return drops_scores(table) + drops_splits(table)


def _is_coco(source: Source) -> bool:
    if source.kind != "json" or not isinstance(source.json, dict):
        return False
    return {"images", "annotations", "categories"} <= set(source.json)


def _has_lvis_fields(source: Source) -> bool:
    images = source.json["images"]
    return isinstance(images, list) and any(
        isinstance(image, dict) and "neg_category_ids" in image for image in images
    )


def _read(source: Source, *, with_absent: bool) -> Stated:
    document = expect(source, source.json, dict, "the document")
    images = objects(source, document, "images")
    categories = objects(source, document, "categories")
    names = [_file_name(source, image, f"images[{i}]") for i, image in enumerate(images)]
    classes = [
        member(source, category, "name", str, f"categories[{i}]").strip()
        for i, category in enumerate(categories)
    ]
    only_once(source, "image", names)
    only_once(source, "category name", classes)
    rows, columns = _numbers(source, "images", images), _numbers(source, "categories", categories)
    cells: list[tuple[int, int, int, str]] = []

    def state(row: int, category: object, value: int, where: str) -> None:
        if category not in columns:
            raise source.error(f"there is no category with id {category!r}", where)
        cells.append((row, columns[category], value, where))

    for i, note in enumerate(objects(source, document, "annotations")):
        where = f"annotations[{i}]"
        image = member(source, note, "image_id", (int, str), where)
        if image not in rows:
            raise source.error(f"there is no image with id {image!r}", where)
        state(rows[image], member(source, note, "category_id", (int, str), where), PRESENT, where)
    for i, item in enumerate(images if with_absent else []):
        where = f"images[{i}].neg_category_ids"
        for category in expect(source, item.get("neg_category_ids", []), list, where):
            state(i, expect(source, category, (int, str), where), ABSENT, where)
    # several objects of a class are one label
    unique = list({(row, column, value): where for row, column, value, where in cells}.items())
    return Stated(
        Names(names),
        Names(classes),
        np.array([key[0] for key, _ in unique], dtype=np.int64),
        np.array([key[1] for key, _ in unique], dtype=np.int64),
        np.array([key[2] for key, _ in unique], dtype=np.int8),
        where=lambda cells: [unique[at][1] for at in cells],
    )


def _file_name(source: Source, image: dict[str, Any], where: str) -> str:
    if "file_name" not in image and isinstance(image.get("coco_url"), str):  # LVIS
        return str(image["coco_url"]).rsplit("/", 1)[-1]
    name = member(source, image, "file_name", str, where)
    return str(name)


def _numbers(source: Source, key: str, items: list[dict[str, Any]]) -> dict[object, int]:
    ids = [member(source, item, "id", (int, str), f"{key}[{i}]") for i, item in enumerate(items)]
    numbers: dict[object, int] = {}
    for i, name in enumerate(ids):
        if name in numbers:
            raise source.error(f"the id {name!r} is taken by {key}[{numbers[name]}]", f"{key}[{i}]")
        numbers[name] = i
    return numbers


def _write(table: LabelTable, path: Path, *, with_absent: bool) -> None:
    cells = table.cells
    images: list[dict[str, Any]] = [
        {"id": i + 1, "file_name": name} for i, name in enumerate(table.ids)
    ]
    if with_absent:
        for image in images:
            image |= {"neg_category_ids": [], "not_exhaustive_category_ids": []}
        absent = cells.where(cells.values == ABSENT)
        for row, column in zip(absent.rows.tolist(), absent.columns.tolist(), strict=True):
            images[row]["neg_category_ids"].append(column + 1)
    present = cells.where(cells.values == PRESENT)
    pairs = zip(present.rows.tolist(), present.columns.tolist(), strict=True)
    document = {
        "images": images,
        "categories": [{"id": j + 1, "name": name} for j, name in enumerate(table.classes)],
        "annotations": [
            {"id": k + 1, "image_id": row + 1, "category_id": column + 1, "iscrowd": 0}
            for k, (row, column) in enumerate(pairs)
        ],
    }
    with atomic_file(path) as stream:
        stream.write(json.dumps(document, ensure_ascii=False).encode())
