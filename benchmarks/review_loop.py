"""The loop of `review`, by keyboard in a real browser: train, answer 150 labels, train again.

    python -m benchmarks.review_loop
    partlabel demo --out demo
    python -m benchmarks.review_loop --demo demo

Generated scenes with 5% of their labels known, or two runs of the folder that `partlabel demo`
wrote; the answers are the truth. The runs before and after differ in their labels only. They are
measured on test images, or for ``run-merged``, whose images all have labels, on all labels that are
unknown before and after. Needs Chromium.
"""

import argparse
import csv
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from benchmarks.report import machine
from partlabel import evaluate, read_labels, train
from partlabel.labels import PRESENT, LabelTable, scenes, simulate
from partlabel.output import tour
from partlabel.training.run import Run

FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
HEAD: dict[str, Any] = {
    "method": "bce",
    "frozen": "all",
    "optimizer": "lbfgs",
    "weight_decay": 1e-3,
    "size": 128,
}


def answer(
    address: str,
    classes: Sequence[str],
    truth: dict[tuple[str, str], bool],
    number: int,
    order: str,
) -> int:
    """Answer this many labels by keys, a board of each class at a time; returns the keys."""
    keys = 0
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1000, "height": 700})
        page.goto(address)
        page.wait_for_selector("body[data-ready=yes] .tile", timeout=300_000)
        page.select_option("#order", order)
        page.wait_for_selector(".tile")
        at, step = 0, "]"
        while True:
            if not page.locator(".tile.unknown").count():
                page.keyboard.press("Enter")
                keys += 1
                page.wait_for_selector(".tile.unknown")
            for _ in range(min(page.locator(".tile.unknown").count(), number)):
                tile = page.locator(".tile.cursor")
                cell = tile.get_attribute("title") or "", tile.get_attribute("data-name") or ""
                page.keyboard.press("1" if truth[cell] else "0")
                keys, number = keys + 1, number - 1
            page.wait_for_selector("#saved.good")
            if not number:
                break
            if at == len(classes) - 1 or (at == 0 and step == "["):  # turn round
                step = "[" if step == "]" else "]"
                continue
            at += 1 if step == "]" else -1
            page.keyboard.press(step)
            keys += 1
            page.wait_for_selector(f'h1[title="{classes[at]}"]')
            page.wait_for_selector(".tile")
        page.wait_for_selector("#saved.good")
        browser.close()
    return keys


def review(
    folder: Path, cache: Path, truth: LabelTable, answers: int, order: str
) -> tuple[LabelTable, int]:
    """The labels after a review of the run in a folder, and the keys that were pressed."""
    values, classes = truth.dense(), list(truth.classes)
    cells = {
        (image, name): bool(values[row, column] == PRESENT)
        for row, image in enumerate(truth.ids)
        for column, name in enumerate(classes)
    }
    # the order of the classes on the page: that of the run
    names = list(LabelTable.open(folder / "labels.arrow").classes)
    call = [sys.executable, "-m", "partlabel", "review", str(folder), "--no-browser"]
    call += ["--cache", str(cache)]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        try:
            keys = answer(found.group(), names, cells, answers, order)
        finally:
            server.send_signal(signal.SIGINT)  # as Ctrl-C does
    target = folder.with_name("reviewed.csv")
    target.unlink(missing_ok=True)
    target.with_name("verdicts.csv").unlink(missing_ok=True)
    subprocess.run([*call, "--export", str(target), "--to", "cells"], check=True)
    with target.with_name("verdicts.csv").open(newline="") as stream:
        asked = Counter(row["asked"] for row in csv.DictReader(stream))
    print(f"{answers} answers, {keys} keys, most {order} first; {dict(asked)}")
    return read_labels(target, "cells"), keys


def on_scenes(images: int, classes: int, answers: int, seed: int, order: str) -> None:
    """Print test mAP before and after, on new scenes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = scenes.World(classes=classes, size=128, seed=seed)
        full = scenes.write(folder / "scenes", images, world, test=0.5)
        hidden = simulate.hide(full, "partial", 0.05, seed=seed, split="train", holdout=0.3)
        pictures, cache = folder / "scenes" / "images", folder / "cache"
        more: dict[str, Any] = {**HEAD, "cache": cache, "seed": seed}
        first = train(hidden, pictures, folder / "run", **more)
        print(f"{images} scenes x {classes} classes, 5% known, seed {seed}")
        reviewed, _ = review(folder / "run", cache, full, answers, order)
        again = train(reviewed, pictures, folder / "again", **more)
        _print(first, again, full.split("test"), pictures, cache)


def on_demo(demo: Path, answers: int, order: str) -> None:
    """Print mAP before and after, on runs of the demo; its folder stays as it is."""
    truth, merged = read_labels(demo / "labels.csv"), read_labels(demo / "merged.csv", "cells")
    settings: dict[str, dict[str, Any]] = {
        "run-em-apl": {**tour.SETTINGS, "method": "em-apl", "options": tour.APL},
        "run-merged": {**tour.PLAN, "val": 0.3},
    }
    for name, more in settings.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder, cache = Path(temporary), demo / "cache"
            shutil.copytree(demo / name, folder / name)
            print(f"{demo / name}")
            reviewed, _ = review(folder / name, cache, truth, answers, order)
            more["cache"] = cache
            again = train(reviewed, demo / "images", folder / "again", **more)
            test = _unknown(truth, merged, reviewed) if name == "run-merged" else None
            first = Run(demo / name)
            _print(first, again, test or truth.split("test"), demo / "images", cache)


def _unknown(truth: LabelTable, *tables: LabelTable) -> LabelTable:
    """The true labels of all cells that are unknown in each of the tables."""
    values = truth.dense()
    for table in tables:
        columns = np.array([list(truth.classes).index(name) for name in table.classes])
        values[np.ix_(truth.ids.find(table.ids), columns)] *= table.dense() == 0
    return LabelTable(list(truth.ids), list(truth.classes), values)


def _print(first: Run, again: Run, test: LabelTable, images: Path, cache: Path) -> None:
    before, after = (evaluate(one, test, images, cache=cache)["mAP"] for one in (first, again))
    print(f"mAP before {100 * before:.2f}, after {100 * after:.2f}")
    print(machine())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--answers", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--order", default="useful", choices=["useful", "doubtful"])
    given = parser.parse_args()
    if given.demo:
        on_demo(given.demo, given.answers, given.order)
    else:
        on_scenes(given.images, given.classes, given.answers, given.seed, given.order)
