"""The loop of `review`, by keyboard in a real browser: train, answer 150 labels, train again.

    python -m benchmarks.review_loop

Generated scenes with 5% of their labels known; the answers are the truth. The two runs differ in
their labels only, and are measured on images that neither was trained on. Needs Chromium.
"""

import argparse
import csv
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from benchmarks.report import machine
from partlabel import evaluate, read_labels, train, write_labels
from partlabel.labels import scenes, simulate

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


def run(
    images: int = 600, classes: int = 8, answers: int = 150, seed: int = 0, order: str = "useful"
) -> None:
    """Print test mAP before and after."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        full = scenes.write(
            folder / "scenes", images, scenes.World(classes=classes, size=128, seed=seed), test=0.5
        )
        hidden = simulate.hide(full, "partial", 0.05, seed=seed, split="train", holdout=0.3)
        write_labels(hidden, folder / "labels.csv")
        pictures = folder / "scenes" / "images"
        more: dict[str, Any] = {**HEAD, "cache": folder / "cache", "seed": seed}
        test = full.split("test")
        first = train(folder / "labels.csv", pictures, folder / "run", **more)
        with (folder / "scenes" / "labels.csv").open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        truth = {(row["image"], c): row[c] == "1" for row in rows for c in full.classes}
        call = [sys.executable, "-m", "partlabel", "review", str(folder / "run"), "--no-browser"]
        cache = ["--cache", str(folder / "cache")]
        with subprocess.Popen([*call, *cache], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found is not None
            try:
                keys = answer(found.group(), list(full.classes), truth, answers, order)
            finally:
                server.terminate()
        target = folder / "reviewed.csv"
        subprocess.run([*call, *cache, "--export", str(target), "--to", "cells"], check=True)
        again = train(read_labels(target, "cells"), pictures, folder / "again", **more)
        before, after = (
            evaluate(one, test, pictures, cache=folder / "cache")["mAP"] for one in (first, again)
        )
    about = f"{images} scenes x {classes} classes, 5% known, seed {seed}"
    print(f"{about}: {answers} answers, {keys} keys, most {order} first")
    print(f"test mAP before {100 * before:.2f}, after {100 * after:.2f}")
    print(machine())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--answers", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--order", default="useful", choices=["useful", "doubtful"])
    run(**vars(parser.parse_args()))
