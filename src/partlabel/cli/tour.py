"""A tour on generated pictures: from labels with holes to a classifier and completed labels."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from partlabel.base.errors import count
from partlabel.base.terminal import console, progress, say
from partlabel.judging.completion import Completion, complete_run
from partlabel.judging.scoring import evaluate_run, own_thresholds
from partlabel.labels import ABSENT, MODEL, PRESENT, LabelTable, simulate
from partlabel.labels.formats import write_labels
from partlabel.labels.inspection import inspect, split_summaries
from partlabel.labels.scenes import World, write
from partlabel.metrics import Evaluation
from partlabel.output.display import (
    describe,
    grid,
    show_completion,
    show_inspection,
    split_line,
)
from partlabel.output.report import build_report
from partlabel.training.run import Run
from partlabel.training.train import train

COUNT, WORLD = 2000, World(classes=12, size=128, seed=0, difficulty=0.3, objects=2.2)
SETTINGS: dict[str, Any] = {
    "frozen": "all",
    "size": 128,
    "epochs": 15,
    "optimizer": "lbfgs",
    "weight_decay": 3e-3,
}
PRECISION = 0.8  # with a few hundred pictures more cannot be shown
APL: dict[str, Any] = {"alpha": "auto", "beta": 0.4, "warmup": 8}

_INK = {"known": "#15803d", "absent": "#94a3b8", "filled": "#2563eb", "unknown": "#d97706"}


def run(folder: Path) -> None:
    """Make pictures, merge labels and complete them; hide labels, train three times, report."""
    say(f"1. {COUNT:,} pictures with {WORLD.classes} classes of objects, everything known")
    with progress("drawing") as bar:
        truth = write(folder, COUNT, WORLD, test=0.3, done=lambda done: bar(done, COUNT))
    say(f"   {folder}/labels.csv: {describe(truth)}")
    merged = _merge(folder, truth)
    _complete(folder, merged, truth)

    say("\n4. One tag for each picture, as on the web: the rest of the training labels is hidden")
    hidden = simulate.hide(truth, "single-positive", seed=0, split="train", holdout=0.2)
    write_labels(hidden, folder / "single-positive.csv")
    say(f"   {folder}/single-positive.csv: {split_line(split_summaries(hidden))}\n")
    show_inspection("split train", inspect(hidden.split("train")))

    say("\n5. Three trainings, on features of a network that knows ImageNet")
    everything = simulate.hide(truth, "partial", 1.0, seed=0, split="train", holdout=0.2)
    runs, results = {}, {}
    for method, labels, options in (
        ("bce", everything, {}),
        ("an", hidden, {}),
        ("em-apl", hidden, APL),
    ):
        say(f"   {method} on {'all' if labels is everything else 'single positive'} labels")
        runs[method] = _train(folder, method, labels, options)
        thresholds = own_thresholds(runs[method])
        results[method] = evaluate_run(runs[method], truth.split("test"), threshold=thresholds)
    _show(results)
    page = build_report(runs["em-apl"], truth=truth, baseline=runs["an"])
    say(f"Look at {page}: this run beside 'an', and both against the truth")


def _merge(folder: Path, truth: LabelTable) -> LabelTable:
    say("2. Two teams label other pictures for other classes, one as CSV, one as LVIS JSON")
    row, column = np.arange(len(truth)), np.arange(len(truth.classes))
    half, middle = len(truth) // 2, len(truth.classes) // 2
    first = _only(truth, row < half + 50, column < middle)
    second = _only(truth, row >= half, column >= middle)
    write_labels(first, folder / "team-a.csv")
    write_labels(second.with_splits(None), folder / "team-b.json", "lvis")
    merged = first.merge(second)
    write_labels(merged, folder / "merged.csv")
    conflicts = count(merged.conflicts, "conflict")
    say(f"   merged, {folder}/merged.csv: {describe(merged)}, {conflicts}")
    return merged


def _complete(folder: Path, merged: LabelTable, truth: LabelTable) -> None:
    say("\n3. What a team did not look for, filled in where labels kept aside show that it is safe")
    own = {"method": "bce", "cache": folder / "cache", "val": 0.3, **SETTINGS}
    done = train(merged, folder / "images", folder / "run-merged", **own)
    completion = complete_run(done, PRECISION)
    completion.save(folder / "completed.csv")
    show_completion(completion)
    _judge(completion, merged, truth)
    _sheet(folder, completion.table, merged).save(folder / "completed.png")
    say(f"   {folder}/completed.csv: value, score and source of each label")
    say(f"   {folder}/completed.guarantees.csv: what that rests on, class by class")
    say(f"   {folder}/completed.suspects.csv: known labels that look wrong")
    say(f"   {folder}/completed.png: pictures with their labels")


def _only(table: LabelTable, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> LabelTable:
    """The table as known to someone who looked at these images for these classes."""
    names = [name for name, wanted in zip(table.classes, columns, strict=True) if wanted]
    return table.subset(rows).with_classes(names)


def _train(
    folder: Path,
    method: str,
    labels: LabelTable,
    options: dict[str, Any],
    name: str = "",
    **more: Any,
) -> Run:
    return train(
        labels,
        folder / "images",
        folder / (name or f"run-{method}"),
        cache=folder / "cache",
        method=method,
        options=options,
        **SETTINGS,
        **more,
    )


def _show(results: dict[str, Evaluation]) -> None:
    names = {
        "bce": "all labels known (bce)",
        "an": "one label a picture, the rest taken for absent (an)",
        "em-apl": "one label a picture, the rest unknown (em-apl)",
    }
    figures = ("mAP", "CF1", "OF1")
    rows = [
        [names[name], *(f"{100 * result[figure]:.1f}" for figure in figures)]
        for name, result in results.items()
    ]
    console().print(grid([("test pictures", False), *((f, True) for f in figures)], rows))
    full, an, apl = (100 * results[name]["mAP"] for name in names)
    say(f"   Taking unknown for absent costs {full - an:.1f} points of mAP; "
        f"em-apl wins {apl - an:.1f} of them back.\n")  # fmt: skip


def _judge(completion: Completion, given: LabelTable, truth: LabelTable) -> None:
    """How much of what was filled in is right, since the truth is known here."""
    table = completion.table
    same = truth.subset(truth.ids.find(table.ids)).with_classes(list(table.classes))
    filled = (given.with_classes(list(table.classes)).dense() == 0) & (table.dense() != 0)
    right = (table.dense() == same.dense())[filled]
    if len(right):
        say(f"   The truth is known here: {right.mean():.1%} of them are right")


def _sheet(
    folder: Path, completed: LabelTable, known: LabelTable, across: int = 6, down: int = 2
) -> Image.Image:
    """Training pictures with their labels: known, filled in, still unknown."""
    side, line, font = 160, 17, ImageFont.load_default(size=13)
    height = side + line * 3 + 14
    sheet = Image.new("RGB", (across * (side + 12), down * height), "white")
    pen = ImageDraw.Draw(sheet)
    rows = np.flatnonzero(known.in_split("train"))
    chosen = rows[np.linspace(0, len(rows) - 1, across * down).astype(int)]
    cells = completed.cells.take(chosen)
    sources = np.zeros((len(chosen), len(completed.classes)), dtype=np.int8)
    sources[cells.rows, cells.columns] = cells.sources_or_human()
    values, scores = completed.dense(chosen), completed.scores(chosen)
    for place, row in enumerate(chosen):
        x, y = 6 + place % across * (side + 12), 6 + place // across * height
        picture = Image.open(folder / "images" / completed.ids[int(row)]).resize((side, side))
        sheet.paste(picture, (x, y))
        lines = []
        for j, name in enumerate(completed.classes):
            by_model = sources[place, j] == MODEL
            score = f" {100 * scores[place, j]:.0f}%"
            if values[place, j] == PRESENT:
                lines.append(("filled", f"+ {name}{score}") if by_model else ("known", name))
            elif values[place, j] != ABSENT:
                lines.append(("unknown", f"? {name}{score}"))
        for k, (kind, text) in enumerate(sorted(lines)[:3]):
            pen.text((x, y + side + 3 + k * line), text, _INK[kind], font)
    return sheet
