"""A tour on generated pictures: what a half-labelled collection looks like."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from partlabel import simulate
from partlabel.display import describe, show_inspection, split_line
from partlabel.errors import count
from partlabel.formats import write_labels
from partlabel.inspection import inspect, split_summaries
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.scenes import World, write
from partlabel.terminal import progress, say

COUNT, WORLD = 600, World(classes=8, size=96, seed=0)

_INK = {PRESENT: "#1a7f37", ABSENT: "#8c959f", 0: "#9a6700"}
_MARK = {PRESENT: "yes", ABSENT: "no", 0: "?"}


def run(folder: Path) -> None:
    """Make pictures; label half of them for half of the classes; merge, hide, inspect."""
    say(f"1. {COUNT} pictures with {WORLD.classes} classes of objects, everything known")
    with progress("drawing") as bar:
        truth = write(folder, COUNT, WORLD, test=0.25, done=lambda done: bar(done, COUNT))
    say(f"   {folder}/labels.csv: {describe(truth)}")

    say("2. Two teams label other pictures for other classes, one team as CSV, one as LVIS JSON")
    half, classes = len(truth) // 2, len(truth.classes) // 2
    first = _only(truth, np.arange(len(truth)) < half + 50, np.arange(len(truth.classes)) < classes)
    second = _only(truth, np.arange(len(truth)) >= half, np.arange(len(truth.classes)) >= classes)
    write_labels(first, folder / "team-a.csv")
    write_labels(second.with_splits(None), folder / "team-b.json", "lvis")
    say(f"   {folder}/team-a.csv:  {describe(first)}")
    say(f"   {folder}/team-b.json: {describe(second)}")

    say("3. Merged: what neither team looked for stays unknown")
    merged = first.merge(second)
    write_labels(merged, folder / "merged.csv")
    say(f"   {folder}/merged.csv: {describe(merged)}, {count(merged.conflicts, 'conflict')}\n")
    show_inspection("merged.csv", inspect(merged, images=folder / "images"))

    say("\n4. Or one tag for each picture, as on the web: single positives for the training split")
    single = simulate.hide(truth, "single-positive", seed=0, split="train", holdout=0.2)
    write_labels(single, folder / "single-positive.csv")
    say(f"   {folder}/single-positive.csv: {split_line(split_summaries(single))}")

    _sheet(folder, merged).save(folder / "merged.png")
    say(f"\nLook at {folder}/merged.png: pictures with what is known of them.")
    say(f"Then try: partlabel inspect {folder}/merged.csv --images {folder}/images")


def _only(table: LabelTable, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> LabelTable:
    """The table as known to someone who looked at these images for these classes."""
    part = table.subset(rows)
    names = [name for name, wanted in zip(table.classes, columns, strict=True) if wanted]
    return LabelTable(part.ids, names, part.dense()[:, columns], part.splits)


def _sheet(folder: Path, table: LabelTable, across: int = 6, down: int = 3) -> Image.Image:
    """Pictures from the whole table with their labels: present, absent, unknown."""
    side, line, font = 160, 16, ImageFont.load_default(size=13)
    height = side + line * len(table.classes) + 14
    sheet = Image.new("RGB", (across * (side + 12), down * height), "white")
    pen = ImageDraw.Draw(sheet)
    chosen = np.linspace(0, len(table) - 1, across * down).astype(int)
    for place, (row, labels) in enumerate(zip(chosen, table.dense(chosen), strict=True)):
        x, y = 6 + place % across * (side + 12), 6 + place // across * height
        picture = Image.open(folder / "images" / table.ids[int(row)]).resize((side, side))
        sheet.paste(picture, (x, y))
        for k, (name, value) in enumerate(zip(table.classes, labels.tolist(), strict=True)):
            y_text = y + side + 3 + k * line
            pen.text((x, y_text), _MARK[value], _INK[value], font)
            pen.text((x + 26, y_text), name, _INK[value], font)
    return sheet
