"""What the tests of the report share: small runs, and the parts of a page."""

import re
from functools import cached_property
from pathlib import Path
from typing import Any

from partlabel import LabelTable, read_labels, train
from partlabel.labels import scenes, simulate
from partlabel.training.run import Run

TINY: dict[str, Any] = {
    "backbone": "test_efficientnet",
    "weights": "none",
    "size": 64,
    "batch": 8,
    "epochs": 3,
    "frozen": "all",
}


class Workspace:
    """Sixty images, their full labels, single positives of the training images, and runs."""

    def __init__(self, folder: Path) -> None:
        self.images, self.cache, self.folder = folder / "s" / "images", folder / "cache", folder
        scenes.write(folder / "s", 60, scenes.World(5, 64, 0), test=0.2)
        full = read_labels(folder / "s" / "labels.csv")
        classes = ["<b>", "a $ and $ b", *list(full.classes)[2:]]
        self.truth = LabelTable(full.ids, classes, full.dense(), full.splits)
        self.hidden = simulate.hide(
            self.truth, "single-positive", split="train", holdout=0.3
        ).subset(self.truth.in_split("train"))

    def train(self, method: str, name: str = "", labels: Any = None, **more: Any) -> Run:
        call = {"method": method, "cache": self.cache, **TINY, **more}
        table = self.hidden if labels is None else labels
        return train(table, self.images, self.folder / (name or method), **call)

    @cached_property
    def em_apl(self) -> Run:
        return self.train("em-apl", options={"warmup": 1, "alpha": "auto"})

    @cached_property
    def an(self) -> Run:
        return self.train("an")

    @cached_property
    def role(self) -> Run:
        return self.train("role")


def page_of(path: Path) -> str:
    """The page without its charts."""
    return re.sub(r"<svg.*?</svg>", "<svg/>", path.read_text(), flags=re.DOTALL)


def section(page: str, title: str) -> str:
    """The content of a section; empty if the page does not have it."""
    match = re.search(rf"<h2>{re.escape(title)}</h2>(.*?)</section>", page, re.DOTALL)
    return match[1] if match else ""


def cells(part: str) -> list[list[str]]:
    """The text of the cells of a table, row by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", part, re.DOTALL)
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows]
