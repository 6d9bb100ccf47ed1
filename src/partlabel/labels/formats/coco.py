"""The ``coco`` and ``lvis`` formats: JSON with images, categories and annotations."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from partlabel.labels import ABSENT, PRESENT, LabelTable, Names
from partlabel.labels.formats.format import Format, drops_absent, drops_scores, drops_splits
from partlabel.labels.formats.packing import packed_file
from partlabel.labels.formats.shape import expect, member, objects
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated, only_once


class Coco(Format):
    """A class is present in an image if it is annotated there; other classes are not mentioned."""

    name = "coco"
    lists_only_present = True

    def matches(self, source: Source) -> bool:
        """Whether the document has images, categories and annotations, and no LVIS fields."""
        return _is_coco(source) and not _has_lvis_fields(source)

    def read(self, source: Source) -> Stated:
        """The annotated classes of each image; the name of an image is its ``file_name``."""
        return _read(source, with_absent=False)

    def write(self, table: LabelTable, path: Path) -> None:
        """Write one annotation per present class, without a box."""
        _write(table, path, with_absent=False)

    def drops(self, table: LabelTable) -> list[str]:
        """Absent labels, scores and splits."""
        return drops_absent(table) + drops_scores(table) + drops_splits(table)


class Lvis(Format):
    """Like COCO, but each image also lists the classes that are known to be absent."""

    name = "lvis"

    def matches(self, source: Source) -> bool:
        """Whether images have ``neg_category_ids``."""
        return _is_coco(source) and _has_lvis_fields(source)

    def read(self, source: Source) -> Stated:
        """Annotated classes are present, those in ``neg_category_ids`` are absent."""
        return _read(source, with_absent=True)

    def write(self, table: LabelTable, path: Path) -> None:
        """Write one annotation per present class, without a box, and the absent classes."""
        _write(table, path, with_absent=True)

    def drops(self, table: LabelTable) -> list[str]:
        """Scores and splits."""
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
    rows = _positions_by_id(source, "images", images)
    columns = _positions_by_id(source, "categories", categories)
    # several objects of a class are one label, at the location of the last
    locations: dict[tuple[int, int, int], str] = {}

    def state(row: int, category: object, value: int, where: str) -> None:
        if category not in columns:
            raise source.error(f"there is no category with id {category!r}", where)
        locations[row, columns[category], value] = where

    for i, annotation in enumerate(objects(source, document, "annotations")):
        where = f"annotations[{i}]"
        image_id = member(source, annotation, "image_id", (int, str), where)
        if image_id not in rows:
            raise source.error(f"there is no image with id {image_id!r}", where)
        category = member(source, annotation, "category_id", (int, str), where)
        state(rows[image_id], category, PRESENT, where)
    for i, image in enumerate(images if with_absent else []):
        where = f"images[{i}].neg_category_ids"
        for category in expect(source, image.get("neg_category_ids", []), list, where):
            state(i, expect(source, category, (int, str), where), ABSENT, where)
    statements = np.array(list(locations), dtype=np.int64).reshape(-1, 3)
    where_stated = list(locations.values())
    return Stated(
        Names(names),
        Names(classes),
        statements[:, 0],
        statements[:, 1],
        statements[:, 2].astype(np.int8),
        where=lambda positions: [where_stated[position] for position in positions],
    )


def _file_name(source: Source, image: dict[str, Any], where: str) -> str:
    if "file_name" not in image and isinstance(image.get("coco_url"), str):  # as in LVIS
        return str(image["coco_url"]).rsplit("/", 1)[-1]
    return str(member(source, image, "file_name", str, where))


def _positions_by_id(source: Source, key: str, items: list[dict[str, Any]]) -> dict[object, int]:
    """The position of each item by its id; an id that occurs twice is an error."""
    ids = [member(source, item, "id", (int, str), f"{key}[{i}]") for i, item in enumerate(items)]
    positions: dict[object, int] = {}
    for i, item_id in enumerate(ids):
        if item_id in positions:
            first = f"{key}[{positions[item_id]}]"
            raise source.error(f"the id {item_id!r} is already the id of {first}", f"{key}[{i}]")
        positions[item_id] = i
    return positions


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
    with packed_file(path) as stream:
        stream.write(json.dumps(document, ensure_ascii=False).encode())
