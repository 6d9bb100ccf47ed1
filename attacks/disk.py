"""Writes that fail at a random size, as on a full disk: old files stay whole."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from attacks.calls import NAMES, answer, contents, copy_run, words_of
from attacks.harness import Failure, command, make_scene, training

COUNT = 400
ATTACKS = "commands"
LIMIT = 60

_TRAINING = ["--method", "em-apl", "--set", "warmup=1", "--epochs", "2"]
_FILLING = ["--min-precision", "0.5"]
_FROZEN = ["--method", "an", "--epochs", "1", "--frozen"]


@dataclass(frozen=True)
class Shared:
    """A run, images and label files."""

    scene: Path
    run: Path


def prepare(folder: Path) -> Shared:
    """Train a run that the commands read."""
    scene = make_scene(folder)
    command(*training(scene, folder / "run", *_TRAINING)).check((0,))
    answer(folder / "run", scene)
    return Shared(scene, folder / "run")


def attack(shared: Shared, folder: Path, rng: Random) -> None:
    """One command whose files cannot grow beyond a random size."""
    run, old, scene = folder / "run", folder / "old", shared.scene
    copy_run(shared.run, run)
    (run / "report.html").write_text("old")
    old.write_text("old")
    labels = str(scene / "labels.csv")
    calls: dict[str, list[str]] = {
        "train": training(scene, folder / "new", *_TRAINING),
        "frozen": training(scene, folder / "new", *_FROZEN, "--cache", str(folder / "cache")),
        "complete": ["complete", str(run), "-o", str(old), "--overwrite", *_FILLING],
        "predict": ["predict", str(run), str(scene / "images"), "-o", str(old), "--overwrite"],
        "report": ["report", str(run)],
        "evaluate": ["evaluate", str(run), "--reserved", "--json", str(old)],
        "convert": ["convert", labels, str(old), "--to", rng.choice(("csv", "arrow", "coco"))],
        "merge": ["merge", labels, labels, "-o", str(old), "--to", "csv"],
        "simulate": [
            *("simulate", labels, str(old), "--to", "csv"),
            *("--strategy", "partial", "--proportion", "0.5"),
        ],
        "scenes": ["scenes", str(folder / "scenes"), "--count", "10", "--size", "64"],
    }
    out = folder / "out"
    out.mkdir()
    for other in NAMES:
        calls[other] = words_of(other, run, scene, out)
    name = rng.choice(sorted(calls))
    before = contents(run)
    limit = int(10 ** rng.uniform(0, 6.5))
    outcome = command(*calls[name], file_size=limit)
    try:
        outcome.check((0, 1, 2), "riting failed", "File too large", str(folder))
        if outcome.code and old.read_text() != "old":
            raise Failure("the old file was changed")
        if outcome.code and any(out.iterdir()):
            raise Failure(f"{[path.name for path in out.iterdir()]} was written")
        after = contents(run)
        changed = [file for file in before if after.get(file) != before[file]]
        if changed and not (outcome.code == 0 and changed == ["report.html"]):
            raise Failure(f"{changed} of the run were changed")
        left = [path.name for path in folder.rglob("*.partial")]
        if left:
            raise Failure(f"{left} are left")
    except Failure as failure:
        raise Failure(f"{name} with files of at most {limit} bytes: {failure}") from None
    if outcome.code and name == "train":  # with space again, it goes on
        command(*calls[name], "--resume").check((0,))
        best = "best.safetensors"
        if (folder / "new" / best).read_bytes() != (shared.run / best).read_bytes():
            raise Failure("a training that went on after a full disk has other weights")
