"""Commands that read a run and write files, which several campaigns attack."""

import csv
import shutil
from pathlib import Path

from attacks.harness import command

EXPORTS = ("onnx", "torch-export", "hub", "label-studio", "hf", "cleanlab", "csv")
FOLDERS = ("export-hub", "export-hf")  # that write a new folder
GROUPS = ("complete", "more", "review", "export-label-studio", "export-csv")  # several files
NAMES = ("suggest", "answers", "plan", "more", "review", *(f"export-{to}" for to in EXPORTS))


def words_of(name: str, run: Path, scene: Path, out: Path, more: tuple[str, ...] = ()) -> list[str]:
    """The words of a command that writes a file ``a``, and what belongs to it, into a folder.

    Args:
        more: options for a run on given features.
    """
    file = "a.pt2" if name == "export-torch-export" else "a"
    to, known = [str(out / file), "--overwrite"], [*more]
    if name.startswith("export-"):
        to = to[:1] if name in FOLDERS else to
        return ["export", str(run), *to, "--to", name.removeprefix("export-"), *known]
    return {
        "suggest": [
            *("suggest", str(run), "--budget", "30", "--for", "promises", "--to", "csv"),
            *("-o", *to, *known),
        ],
        "answers": [
            "complete",
            str(run),
            "--answers",
            str(answers_of(run)),
            "-o",
            *to,
            *_HALF,
            *known,
        ],
        "plan": ["complete", str(run), "--plan", "-o", *to],
        "more": [
            *("complete", str(run), "--images", str(scene / "images"), "-o", *to),
            *("--despite-shift", *_HALF, *known),
        ],
        "review": ["review", str(run), "--export", *to, "--to", "cells", "--filled"],
    }[name]


_HALF = ("--min-precision", "0.5")


def answers_of(run: Path) -> Path:
    """The answers to questions about a run, beside it."""
    return run.with_name(f"{run.name}-answers.csv")


def answer(run: Path, scene: Path, more: tuple[str, ...] = ()) -> None:
    """Ask what ``suggest`` asks, and answer every question with present."""
    folder = run.with_name(f"{run.name}-questions")
    folder.mkdir()
    command(*words_of("suggest", run, scene, folder, more)).check((0,))
    with (folder / "a").open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    with answers_of(run).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(lines[0]))
        writer.writeheader()
        writer.writerows({**line, "value": "1"} for line in lines)


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder, by their paths in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def copy_run(run: Path, target: Path) -> None:
    """Copy a run with what lies beside it: its review, and the answers about it."""
    shutil.copytree(run, target)
    review = run.with_name(f"{run.name}.review")
    if review.is_dir():
        shutil.copytree(review, target.with_name(f"{target.name}.review"))
    if answers_of(run).is_file():
        shutil.copyfile(answers_of(run), answers_of(target))
