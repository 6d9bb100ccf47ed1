"""The demo: merge, train, complete, hide labels, compare and report, on generated images."""

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from partlabel.base.terminal import console, progress, say
from partlabel.judging.completion import Completion, complete_run
from partlabel.judging.scoring import evaluate_run, own_thresholds
from partlabel.labels import ABSENT, MODEL, PRESENT, LabelTable, simulate
from partlabel.labels.formats import write_labels
from partlabel.labels.merge_files import merge_files
from partlabel.labels.merge_plan import FileEntry, MergePlan
from partlabel.labels.scenes import World, write
from partlabel.metrics import Evaluation
from partlabel.output.display import describe, grid, show_completion
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
PLAN: dict[str, Any] = {"size": 128, "budget": "12", "folds": 3}  # of auto, small
PRECISION = 0.8  # a few hundred images are too few to show more
APL: dict[str, Any] = {"alpha": "auto", "beta": 0.4, "warmup": 8}

_COLOURS = {"known": "#15803d", "filled": "#2563eb", "unknown": "#d97706"}
_LOG = "training.log"


def run(folder: Path) -> None:
    """Go through all steps, and print after each one the commands to do the same."""
    truth = _generate(folder)
    merged = _merge(folder, truth)
    _complete(folder, merged, truth)
    hidden = _hide(folder, truth)
    runs = _compare(folder, hidden, truth)
    _report(folder, runs, truth)


def _generate(folder: Path) -> LabelTable:
    say(f"1. Generate {COUNT:,} images with objects of {WORLD.classes} classes")
    with progress("drawing") as show:
        truth = write(folder, COUNT, WORLD, test=0.3, done=lambda done: show(done, COUNT))
    say(f"   wrote {folder}/labels.csv: {describe(truth)}")
    _print_commands(
        "To see what is in your own label file", "partlabel inspect labels.csv --images photos/"
    )
    return truth


def _merge(folder: Path, truth: LabelTable) -> LabelTable:
    say("\n2. Merge three label files: a CSV file, a COCO file, and tags from the web")
    say("   Each of two teams labelled half of the images for half of the classes. COCO lists only")
    say("   present classes. Its annotators looked for all of them, so the others are absent.")
    say("   Images from the web have one tag each. Nobody looked for the other classes.")
    rows, columns = np.arange(len(truth)), np.arange(len(truth.classes))
    half, middle = len(truth) // 2, len(truth.classes) // 2
    truth = truth.with_splits(None)
    from_web = rows % 10 == 9
    first = _part(truth, (rows < half + 50) & ~from_web, columns < middle)
    second = _part(truth, (rows >= half) & ~from_web, columns >= middle)
    tags = simulate.single_positive(truth.subset(from_web), seed=0)
    write_labels(first, folder / "team-a.csv")
    write_labels(second, folder / "team-b.json", "coco")
    write_labels(tags.with_classes(_present_classes(tags)), folder / "web.csv", "tags")
    files = [
        FileEntry(path=folder / "team-a.csv"),
        FileEntry(path=folder / "team-b.json", unlisted="absent"),
        FileEntry(path=folder / "web.csv", unlisted="unknown"),
    ]
    result = merge_files(MergePlan(files=files))
    for part, added in zip(result.parts, result.contributions, strict=True):
        say(f"   {part.entry.path} adds {added.images:,} images and {added.labels:,} labels")
    write_labels(result.table, folder / "merged.csv", "cells")
    say(f"   wrote {folder}/merged.csv: {describe(result.table)}")
    _print_commands(
        "On your own data",
        "partlabel merge team-a.csv team-b.json:unlisted=absent web.csv:unlisted=unknown "
        "-o merged.csv --to cells",
        "partlabel inspect merged.csv",
    )
    return result.table


def _present_classes(table: LabelTable) -> list[str]:
    present = table.counts().present
    return sorted(name for name, number in zip(table.classes, present, strict=True) if number)


def _part(table: LabelTable, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> LabelTable:
    """The labels of some images for some classes."""
    names = [name for name, chosen in zip(table.classes, columns, strict=True) if chosen]
    return table.subset(rows).with_classes(names)


def _complete(folder: Path, merged: LabelTable, truth: LabelTable) -> None:
    say("\n3. Train a classifier, and fill in unknown labels (takes about a minute)")
    say("   Several methods are compared on held-out labels, and the best are combined.")
    say(f"   Labels are filled in only where {PRECISION:.0%} are guaranteed to be correct.")
    with _logged(folder):
        trained = _train(folder, "run-merged", merged, PLAN, val=0.3)
        completion = complete_run(trained, PRECISION, all_scores=True)
        completion.save(folder / "completed.csv")
    for member in trained.record.members:
        say(f"   chosen: {member.name} ({member.share:.0%})")
    show_completion(completion)
    correct = _share_correct(completion, merged, truth)
    if correct is not None:
        say(f"   In fact, {correct:.1%} are correct, as the true labels show.")
    _draw_samples(folder, completion.table).save(folder / "completed.png")
    say(f"   wrote {folder}/completed.csv: value, score and source of each label")
    say(f"   wrote {folder}/completed.guarantees.csv: the evidence for each class")
    say(f"   wrote {folder}/completed.suspects.csv: known labels that look wrong")
    say(f"   wrote {folder}/completed.png: sample images with their labels")
    _print_commands(
        "On your own data",
        "partlabel train merged.csv --images photos/ --val 0.3 --out run",
        f"partlabel complete run -o completed.csv --min-precision {PRECISION}",
    )


def _hide(folder: Path, truth: LabelTable) -> LabelTable:
    say("\n4. Hide labels, to measure how well methods do without them")
    say("   Each training image keeps one present label, like a photo with a single tag.")
    hidden = simulate.hide(truth, "single-positive", seed=0, split="train", holdout=0.2)
    write_labels(hidden, folder / "single-positive.csv")
    known = hidden.split("train").known
    say(f"   wrote {folder}/single-positive.csv: {known:.1%} of the training labels are known")
    _print_commands(
        "On your own data, if all labels are known",
        "partlabel simulate labels.csv tags.csv --strategy single-positive --split train "
        "--holdout 0.2",
    )
    return hidden


def _compare(folder: Path, hidden: LabelTable, truth: LabelTable) -> dict[str, Run]:
    say("\n5. Train three classifiers, and compare them on the test images")
    full = simulate.hide(truth, "partial", 1.0, seed=0, split="train", holdout=0.2)
    runs, results = {}, {}
    for method, labels, options in (
        ("bce", full, {}),
        ("an", hidden, {}),
        ("em-apl", hidden, APL),
    ):
        with _logged(folder):
            chosen = SETTINGS | {"method": method, "options": options}
            trained = _train(folder, f"run-{method}", labels, chosen)
            thresholds = own_thresholds(trained)
            results[method] = evaluate_run(trained, truth.split("test"), threshold=thresholds)
        runs[method] = trained
    _print_results(results)
    _print_commands(
        "On your own data",
        f"partlabel train tags.csv --images photos/ --method em-apl --set alpha=auto {_options()} "
        "--out run",
        "partlabel evaluate run labels.csv --split test --own-thresholds",
    )
    return runs


def _print_results(results: dict[str, Evaluation]) -> None:
    labels = {
        "bce": "all",
        "an": "one per image, others count as absent",
        "em-apl": "one per image, others are unknown",
    }
    figures = ("mAP", "CF1", "OF1")
    columns = [("method", False), ("training labels", False), *((name, True) for name in figures)]
    rows = [
        [method, labels[method], *(f"{100 * result[name]:.1f}" for name in figures)]
        for method, result in results.items()
    ]
    console().print(grid(columns, rows))
    full, absent, unknown = (100 * results[method]["mAP"] for method in labels)
    say(f"   Counting unknown labels as absent costs {full - absent:.1f} points of mAP.")
    say(f"   em-apl recovers {unknown - absent:.1f} of them.")


def _report(folder: Path, runs: dict[str, Run], truth: LabelTable) -> None:
    say("\n6. Write a report about em-apl, compared with an and with the true labels")
    page = build_report(runs["em-apl"], truth=truth, baseline=runs["an"])
    _print_commands("On your own data", "partlabel report run --truth labels.csv --baseline run-an")
    say(f"\nOpen {page} in a browser.")
    say(f"The output of the trainings is in {folder / _LOG}.")


def _train(
    folder: Path, name: str, labels: LabelTable, settings: dict[str, Any], **more: Any
) -> Run:
    return train(
        labels, folder / "images", folder / name, cache=folder / "cache", **settings, **more
    )


def _options() -> str:
    """The settings of the demo as options, except for the size of its images."""
    return f"--frozen --optimizer {SETTINGS['optimizer']} --weight-decay {SETTINGS['weight_decay']}"


@contextmanager
def _logged(folder: Path) -> Iterator[None]:
    """Write the messages of a training to a file, so that the output of the demo stays short."""
    with (folder / _LOG).open("a", encoding="utf-8") as log, redirect_stderr(log):
        yield


def _print_commands(title: str, *lines: str) -> None:
    """Print the commands for the user's own data."""
    say(f"   {title}:")
    for line in lines:
        console().print(f"     {line}", markup=False, soft_wrap=True)  # can be copied as a whole


def _share_correct(completion: Completion, known: LabelTable, truth: LabelTable) -> float | None:
    """The share of the filled-in labels that are correct; None if there are none."""
    table = completion.table
    classes = list(table.classes)
    values = table.dense()
    true_values = truth.subset(truth.ids.find(table.ids)).with_classes(classes).dense()
    filled = (known.with_classes(classes).dense() == 0) & (values != 0)
    return float((values == true_values)[filled].mean()) if filled.any() else None


def _draw_samples(
    folder: Path, completed: LabelTable, across: int = 6, down: int = 2
) -> Image.Image:
    """Images with their labels: known, filled in, still unknown."""
    side, line_height, font = 160, 17, ImageFont.load_default(size=13)
    width, height = side + 12, side + line_height * 3 + 14
    sheet = Image.new("RGB", (across * width, down * height), "white")
    pen = ImageDraw.Draw(sheet)
    chosen = np.linspace(0, len(completed) - 1, across * down).astype(int)
    for position, captions in enumerate(_captions(completed, chosen)):
        x, y = 6 + position % across * width, 6 + position // across * height
        path = folder / "images" / completed.ids[int(chosen[position])]
        sheet.paste(Image.open(path).resize((side, side)), (x, y))
        for line, (kind, text) in enumerate(captions[:3]):
            pen.text((x, y + side + 3 + line * line_height), text, _COLOURS[kind], font)
    return sheet


def _captions(completed: LabelTable, rows: NDArray[np.int64]) -> list[list[tuple[str, str]]]:
    """Kind and text of the labels of each image that are not absent, sorted."""
    cells = completed.cells.take(rows)
    sources = np.zeros((len(rows), len(completed.classes)), dtype=np.int8)
    sources[cells.rows, cells.columns] = cells.sources_or_human()
    values, scores = completed.dense(rows), completed.scores(rows)
    captions = []
    for i in range(len(rows)):
        labels = []
        for j, name in enumerate(completed.classes):
            score = f"{100 * scores[i, j]:.0f}%"
            if values[i, j] == PRESENT and sources[i, j] == MODEL:
                labels.append(("filled", f"+ {name} {score}"))
            elif values[i, j] == PRESENT:
                labels.append(("known", name))
            elif values[i, j] != ABSENT:
                labels.append(("unknown", f"? {name} {score}"))
        captions.append(sorted(labels))
    return captions
