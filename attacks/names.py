"""Hostile names of images and classes: no control of the terminal, no script in the report."""

import csv
import http.client
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.parse import quote
from xml.etree import ElementTree

from attacks import calls
from attacks.harness import Failure, Outcome, command, make_scene, training
from attacks.pages import Page

COUNT = 150
ATTACKS = "sets of names"
LIMIT = 60

_PARTS = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "\u202ereversed",
    "\u2066isolate",
    "\u200fright",
    '"double"',
    "'single'",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</style></title><svg onload=alert(1)>",
    "{{ 7*7 }}{% raw %}",
    "[link](javascript:alert(1))",
    "a|b|c",
    "*_`#~",
    "\\input{/etc/passwd}",
    "$\\frac{1}{0}$",
    "$unbalanced",
    "%s %d %n",
    "& \\& #1 ^ ~",
    "=cmd|' /C calc'!A0",
    "+1-1@SUM(A1)",
    "[bold red]markup[/]",
    "[/]",
    ":smile:",
    "line\nbreak",
    "tab\tcolumn",
    "return\rstart",
    "x" * 180,
    "é日本\U0001f600",
    "a/b",
    "..",
    " padded ",
    "-o",
    "--help",
    "image",
    "split",
    "None",
    "\ufeffbom",
    "zero\u200bwidth",
    "comma,semicolon;",
)
_NOT_IN_CLASSES = "[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # refused
_NOT_IN_IDS = "[\0-\x1f\x7f]"
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Shared:
    """Images with ordinary names and their labels."""

    scene: Path
    header: list[str]
    records: list[list[str]]


def prepare(folder: Path) -> Shared:
    """The scene, whose names each trial replaces."""
    scene = make_scene(folder)
    with (scene / "partial.csv").open(newline="") as stream:
        header, *records = csv.reader(stream)
    return Shared(scene, header, records)


def _name(rng: Random, refused: str) -> str:
    """Some parts, without those that match a pattern."""
    parts = [part for part in _PARTS if not re.search(refused, part)]
    return "".join(rng.choice(parts) for _ in range(rng.choice((1, 1, 2, 3))))


def attack(shared: Shared, folder: Path, rng: Random) -> None:
    """All commands on labels with hostile names; a table that is refused ends the trial."""
    images, labels, run = folder / "images", folder / "labels.csv", folder / "run"
    images.mkdir()
    hostile_classes, hostile_images = rng.choice(((True, False), (False, True), (True, True)))
    # most trials have only names that readers accept, so that all commands see them
    all_parts = rng.random() < 0.2
    in_classes, in_ids = ("(?!)", "(?!)") if all_parts else (_NOT_IN_CLASSES, _NOT_IN_IDS)
    header = list(shared.header)
    if hostile_classes:
        for column in range(2, len(header)):
            if rng.random() < 0.6:
                header[column] = _name(rng, in_classes) + str(column)
    records = []
    for record in shared.records:
        source = shared.scene / "images" / record[0]
        name = record[0]
        if hostile_images and rng.random() < 0.4:
            name = _name(rng, in_ids).replace("/", "_")[:70] + record[0]
        os.link(source, images / name)
        records.append([name, *record[1:]])
    if hostile_images:
        for raw in (b"\xff\xfe.png", b"\xe9.jpg", b"\x1b[2J\xff.png"):
            os.link(source, os.fsencode(images) + b"/" + raw)
    with labels.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *records])
    small = ["--method", rng.choice(("bce", "sr", "em-apl", "imcl")), "--epochs", "1"]
    if small[1] == "em-apl":
        small += ["--set", "warmup=0"]
    words = training(shared.scene, run, *small)
    words[1], words[3] = str(labels), str(images)
    inspected = _run("inspect", labels, "--images", images, "--all")
    _run("inspect", labels, "--json")
    for to in ("cells", "coco", "hf", "voc", "label-studio"):
        out = folder / f"out-{to}{'.jsonl' if to == 'hf' else ''}"
        _run("convert", labels, out, "--to", to, refused=True)
    trained = _run(*words, refused=True)
    if inspected.code or trained.code:
        return
    _run("evaluate", run, "--reserved")
    _run("complete", run, "-o", folder / "completed.csv", "--min-precision", "0.5")
    predicted = folder / "predicted.csv"
    _run("predict", run, images, "-o", predicted, "--excel-safe")
    _check_formulas(predicted)
    _run("report", run)
    _check_markup(run / "report.html")
    _use(shared, run, rng)
    _review(run, rng)
    if rng.random() < 0.3:
        _bench(folder, images, [header, *records])


def _use(shared: Shared, run: Path, rng: Random) -> None:
    """Ask, fill in and export; a class of any name can be written to all files, or is refused."""
    calls.answer(run, shared.scene)
    for name in ("suggest", "answers", "plan", "more", f"export-{rng.choice(calls.EXPORTS)}"):
        out = run.with_name(f"out-{name}")
        out.mkdir()
        words = calls.words_of(name, run, run.parent, out)
        safe = name in ("suggest", "answers", "plan", "more")
        _run(*words, *(["--excel-safe"] if safe else []), refused=not safe)
        for path in out.iterdir() if safe else ():
            _check_formulas(path)
        for path in out.rglob("*.xml"):
            ElementTree.parse(path)  # written by partlabel
        for path in out.rglob("README.md"):
            _check_markup(path)


def _review(run: Path, rng: Random) -> None:
    """Every list of the page, verdicts on labels of hostile names, and new names."""
    with Page(run) as page:
        page.wait_until_ready()
        names = [one["name"] for one in page.get("/api/classes")["classes"]]
        images = {one["row"]: one["image"] for one in page.get("/api/images")["images"]}
        given = []
        for number, name in enumerate(names):
            page.post("/api/board", {"name": name, "random": 2})
            page.ask("GET", f"/api/images/{number}/heat?name={quote(name, safe='')}")
            row = rng.choice(list(images))
            page.judge(f"act-{number:06}", [(row, name, 1)])
            given.append((images[row], name))
        for path in ("progress", "suspects", "changes", f"images/{row}"):
            page.get(f"/api/{path}")
        for path in ("thumbnail", "large"):
            if page.ask("GET", f"/api/images/{row}/{path}")[0] != http.client.OK:
                raise Failure(f"the page does not show {images[row]!r}")
        for _ in range(5):
            text = _name(rng, "(?!)")
            page.ask("GET", f"/api/images?text={quote(text, safe='')}")
            page.ask("POST", "/api/classes", {"name": text, "reviewer": "Ada"})
            page.ask("GET", f"/page/{quote(text, safe='')}")
            page.ask("GET", f"/api/export?format={quote(text, safe='')}")
        page.ask("GET", f"/api/export?format={rng.choice(('cells', 'csv', 'coco', 'voc'))}")
        os.kill(page.child.process, signal.SIGINT)
        _check_output("review", page.child.wait())
    out = run.with_name("reviewed.csv")
    _run("review", run, "--export", out, "--to", "cells")
    with out.with_name("verdicts.csv").open(newline="", encoding="utf-8") as stream:
        found = [(line["image"], line["class"]) for line in csv.DictReader(stream)]
    if found != given:
        raise Failure(f"verdicts on {given} were exported as {found}")
    _run("review", run, "--export", out, "--overwrite", "--to", "cells", "--excel-safe")
    _check_formulas(out)
    _check_formulas(out.with_name("verdicts.csv"))


def _bench(folder: Path, images: Path, lines: list[list[str]]) -> None:
    """Compare two methods; bench makes the validation images itself."""
    labels, spec = folder / "bench.csv", folder / "spec.yaml"
    with labels.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(
            [line[0], line[1].replace("holdout", "train"), *line[2:]] for line in lines
        )
    spec.write_text(
        f"labels: {str(labels)!r}\nimages: {str(images)!r}\nstrategies: [{{strategy: full}}]\n"
        "methods: [{name: an, method: an}, {name: '<script>alert(1)', method: bce}]\n"
        "settings: {backbone: test_efficientnet, weights: none, size: 64, batch: 8, epochs: 1}\n"
    )
    _run("bench", spec, "-o", folder / "bench")


def _run(*words: str | Path, refused: bool = False) -> Outcome:
    """A command, whose output has no control characters; names may be refused where it says."""
    outcome = command(*words)
    outcome.check((0, 2) if refused or words[0] == "inspect" else (0,))
    return _check_output(str(words[0]), outcome)


def _check_output(name: str, outcome: Outcome) -> Outcome:
    match = _CONTROL.search(outcome.output)
    if match:
        around = outcome.output[max(0, match.start() - 60) : match.end() + 20]
        raise Failure(f"partlabel {name}: raw {match.group()!r} in {around!r}")
    return outcome


def _check_formulas(path: Path) -> None:
    """No field of a file for spreadsheets starts a formula."""
    with path.open(newline="", encoding="utf-8") as stream:
        for field in (field for line in csv.reader(stream) for field in line):
            if field.startswith(("=", "+", "-", "@")):
                raise Failure(f"{path.name} has the formula {field!r}")


def _check_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for mark in ("<script>alert", "<img src=x", "<svg onload", "</style></title>"):
        if mark in text:
            at = text.index(mark)
            raise Failure(
                f"{path.name} has {mark!r} unescaped: {text[max(0, at - 80) : at + 40]!r}"
            )
    if 'href="javascript:' in text or "49{%" in text:
        raise Failure(f"{path.name} has a link to a script, or an evaluated template")
