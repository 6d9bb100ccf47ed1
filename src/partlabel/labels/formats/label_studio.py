"""The ``label-studio`` format: JSON tasks with a choice of present or absent per class."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from partlabel.labels import ABSENT, NOT_ASKED, PRESENT, Details, LabelTable, Names
from partlabel.labels.formats.cell_list import ASKED
from partlabel.labels.formats.format import (
    Format,
    drops_order,
    drops_scores,
    drops_without_entries,
)
from partlabel.labels.formats.packing import packed_file
from partlabel.labels.formats.shape import expect, member
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated

CHOICES = {"present": PRESENT, "absent": ABSENT}
UNKNOWN_CHOICE = "unknown"  # says no more than that a class was not chosen
LOCAL_FILES = "/data/local-files/?d="
"""What stands before the path of an image that Label Studio reads from a disk of its own."""


class LabelStudio(Format):
    """A list of tasks, one per image; classes without annotation are unknown.

    The data of a task may have ``asked``: for classes that were asked about, ``random`` or
    ``chosen``.
    """

    name = "label-studio"
    holds_asked = True

    def matches(self, source: Source) -> bool:
        """Whether the document is a list of objects with ``data``."""
        if source.kind != "json" or not isinstance(source.json, list):
            return False
        return all(isinstance(task, dict) and "data" in task for task in source.json)

    def read(self, source: Source) -> Stated:
        """All annotations except cancelled ones; annotators who disagree are a contradiction."""
        split_of_image: dict[str, str] = {}
        statements: list[tuple[str, str, int, str]] = []
        asked: list[int] = []
        for i, task in enumerate(expect(source, source.json, list, "the document")):
            where = f"task [{i}]"
            data = member(source, expect(source, task, dict, where), "data", dict, where)
            image = _plain_path(member(source, data, "image", str, f"{where}.data"))
            split = expect(source, data.get("split") or "", str, f"{where}.data.split")
            if split and split_of_image.get(image, split) not in ("", split):
                raise source.error(f"image '{image}' is in two splits", where)
            split_of_image[image] = split or split_of_image.get(image, "")
            drawn = _asked(source, data, f"{where}.data.asked")
            for label, value, location in _choices(source, task, where):
                statements.append((image, label, value, location))
                asked.append(drawn.get(label, NOT_ASKED))
        rows = {name: row for row, name in enumerate(split_of_image)}
        classes = sorted({label for _, label, _, _ in statements})
        columns = {name: column for column, name in enumerate(classes)}
        return Stated(
            Names(list(split_of_image)),
            Names(classes),
            np.array([rows[image] for image, _, _, _ in statements], dtype=np.int64),
            np.array([columns[label] for _, label, _, _ in statements], dtype=np.int64),
            np.array([value for _, _, value, _ in statements], dtype=np.int8),
            Details(asked=np.array(asked, dtype=np.int8)) if any(asked) else Details(),
            where=lambda positions: [statements[position][3] for position in positions],
            splits=list(split_of_image.values()),
        )

    def write(self, table: LabelTable, path: Path) -> None:
        """Write one task per image, for a project with one choice control per class."""
        classes, words = list(table.classes), {PRESENT: "present", ABSENT: "absent"}
        splits = table.splits or [""] * len(table)
        known = table.cells.where(table.cells.values != 0)
        asked, words_of_asked = known.asked_or_not(), {code: word for word, code in ASKED.items()}
        tasks = []
        for row, (name, split) in enumerate(zip(table.ids, splits, strict=True)):
            of_image = slice(known.starts[row], known.starts[row + 1])
            columns, values = known.columns[of_image].tolist(), known.values[of_image].tolist()
            choices = [
                {
                    "from_name": classes[column],
                    "to_name": "image",
                    "type": "choices",
                    "value": {"choices": [words[value]]},
                }
                for column, value in zip(columns, values, strict=True)
            ]
            data: dict[str, Any] = {"image": name} | ({"split": split} if split else {})
            drawn = {
                classes[column]: words_of_asked[code]
                for column, code in zip(columns, asked[of_image].tolist(), strict=True)
                if code != NOT_ASKED
            }
            if drawn:
                data["asked"] = drawn
            tasks.append({"data": data, "annotations": [{"result": choices}] if choices else []})
        with packed_file(path) as stream:
            stream.write(json.dumps(tasks, ensure_ascii=False, indent=1).encode())

    def drops(self, table: LabelTable) -> list[str]:
        """Scores, classes without known labels, and the order of the classes."""
        known = table.with_cells(table.cells.where(table.cells.values != 0))
        lost = drops_scores(table) + drops_without_entries(known, images=False)
        return lost + drops_order(table)


def _plain_path(image: str) -> str:
    """The path of an image; in an address of Label Studio it is percent-encoded.

    >>> _plain_path("/data/local-files/?d=photos/a%20b.jpg")
    'photos/a b.jpg'
    """
    if not image.startswith(LOCAL_FILES):
        return image
    return unquote(image.removeprefix(LOCAL_FILES))


def _asked(source: Source, data: dict[str, Any], where: str) -> dict[str, int]:
    """How each class of a task was asked about, for those that were."""
    words = expect(source, data.get("asked") or {}, dict, where)
    for word in words.values():
        if word not in ASKED:
            raise source.error(f"{word!r} is not one of {', '.join(filter(None, ASKED))}", where)
    return {name: ASKED[word] for name, word in words.items()}


def _choices(source: Source, task: dict[str, Any], where: str) -> Iterator[tuple[str, int, str]]:
    """Class, value and location of each choice in a task."""
    for k, annotation in enumerate(expect(source, task.get("annotations", []), list, where)):
        location = f"{where}.annotations[{k}]"
        cancelled = expect(source, annotation, dict, location).get("was_cancelled")
        if not isinstance(cancelled, bool | None):
            message = f"'was_cancelled' must be true or false, found {cancelled!r}"
            raise source.error(message, location)
        if cancelled:
            continue
        for result in member(source, annotation, "result", list, location):
            if expect(source, result, dict, location).get("type") != "choices":
                continue
            label = member(source, result, "from_name", str, location).strip()
            choices = member(source, result, "value", dict, location).get("choices")
            is_single = isinstance(choices, list) and len(choices) == 1
            if is_single and str(choices[0]) == UNKNOWN_CHOICE:
                continue
            if not is_single or str(choices[0]) not in CHOICES:
                raise source.error(
                    f"the choice for '{label}' is {choices!r}; it must be present, absent or "
                    "unknown",
                    location,
                )
            yield label, CHOICES[str(choices[0])], location
