"""Label Studio's JSON: one single-choice control per class, with the choices present and absent."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from partlabel.base.files import atomic_file
from partlabel.labels import ABSENT, PRESENT, LabelTable, Names
from partlabel.labels.formats.format import Format, drops_order, drops_scores, drops_silent
from partlabel.labels.formats.shape import expect, member
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated

_CHOICES = {"present": PRESENT, "absent": ABSENT}
_LOCAL = "/data/local-files/?d="


class LabelStudio(Format):
    """A list of tasks; what no annotation speaks of is unknown."""

    name = "label-studio"

    def matches(self, source: Source) -> bool:
        """A list of objects with ``data`` in them."""
        if source.kind != "json" or not isinstance(source.json, list):
            return False
        return all(isinstance(task, dict) and "data" in task for task in source.json)

    def read(self, source: Source) -> Stated:
        """All annotations that were not cancelled; annotators who disagree are a contradiction."""
        images: dict[str, str] = {}
        cells: list[tuple[str, str, int, str]] = []
        for i, task in enumerate(expect(source, source.json, list, "the document")):
            where = f"task [{i}]"
            data = member(source, expect(source, task, dict, where), "data", dict, where)
            image = member(source, data, "image", str, f"{where}.data").removeprefix(_LOCAL)
            split = expect(source, data.get("split") or "", str, f"{where}.data.split")
            if split and images.get(image, split) not in ("", split):
                raise source.error(f"image '{image}' is in two splits", where)
            images[image] = split or images.get(image, "")
            for label, value, place in _choices(source, task, where):
                cells.append((image, label, value, place))
        rows = {name: row for row, name in enumerate(images)}
        classes = sorted({label for _, label, _, _ in cells})
        columns = {name: column for column, name in enumerate(classes)}
        return Stated(
            Names(list(images)),
            Names(classes),
            np.array([rows[image] for image, _, _, _ in cells], dtype=np.int64),
            np.array([columns[label] for _, label, _, _ in cells], dtype=np.int64),
            np.array([value for _, _, value, _ in cells], dtype=np.int8),
            where=lambda found: [cells[at][3] for at in found],
            splits=list(images.values()),
        )

    def write(self, table: LabelTable, path: Path) -> None:
        """A task an image; import it into a project with one choice control per class."""
        classes, words = list(table.classes), {PRESENT: "present", ABSENT: "absent"}
        splits = table.splits or [""] * len(table)
        known = table.cells.where(table.cells.values != 0)
        tasks = []
        for row, (name, split) in enumerate(zip(table.ids, splits, strict=True)):
            cells = slice(known.starts[row], known.starts[row + 1])
            result = [
                {
                    "from_name": classes[column],
                    "to_name": "image",
                    "type": "choices",
                    "value": {"choices": [words[value]]},
                }
                for column, value in zip(
                    known.columns[cells].tolist(), known.values[cells].tolist(), strict=True
                )
            ]
            data = {"image": name} | ({"split": split} if split else {})
            tasks.append({"data": data, "annotations": [{"result": result}] if result else []})
        with atomic_file(path) as stream:
            stream.write(json.dumps(tasks, ensure_ascii=False, indent=1).encode())

    def drops(self, table: LabelTable) -> list[str]:
        """Classes are named where something is said of them."""
        known = table.with_cells(table.cells.where(table.cells.values != 0))
        return drops_scores(table) + drops_silent(known, images=False) + drops_order(table)


def _choices(source: Source, task: dict[str, Any], where: str) -> Iterator[tuple[str, int, str]]:
    """Class, value and place of each choice made in a task."""
    for k, note in enumerate(expect(source, task.get("annotations", []), list, where)):
        place = f"{where}.annotations[{k}]"
        if expect(source, note, dict, place).get("was_cancelled"):
            continue
        for result in member(source, note, "result", list, place):
            if expect(source, result, dict, place).get("type") != "choices":
                continue
            label = member(source, result, "from_name", str, place).strip()
            chosen = member(source, result, "value", dict, place).get("choices")
            if not isinstance(chosen, list) or len(chosen) != 1 or str(chosen[0]) not in _CHOICES:
                message = f"the choice for '{label}' is {chosen!r}; it must be present or absent"
                raise source.error(message, place)
            yield label, _CHOICES[str(chosen[0])], place
