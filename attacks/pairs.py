"""Two processes at the same moment, on one run or on one cache: neither harms the other."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from attacks.harness import Child, Failure, command, make_scene, training

COUNT = 120
ATTACKS = "pairs"
LIMIT = 60


@dataclass(frozen=True)
class Shared:
    """What lone processes leave."""

    scene: Path
    run: Path
    frozen: Path
    completed: bytes


_WORDS = {
    "run": ["--method", "bce", "--epochs", "2"],
    "frozen": ["--method", "an", "--epochs", "2", "--frozen"],
}


def prepare(folder: Path) -> Shared:
    """Train alone, and complete."""
    scene, run, frozen = make_scene(folder), folder / "run", folder / "frozen"
    for out in (run, frozen):
        command(*training(scene, out, *_WORDS[out.name])).check((0,))
    command("complete", run, "-o", folder / "out").check((0,))
    return Shared(scene, run, frozen, (folder / "out").read_bytes())


def attack(shared: Shared, folder: Path, rng: Random) -> None:
    """Start two processes with a random delay between them."""
    delay = rng.choice((0.0, rng.uniform(0, 0.05), rng.uniform(0, 0.5)))
    rng.choice((_one_folder, _one_cache, _complete_and_report))(shared, folder, delay)


def _start(first: list[str], second: list[str], delay: float) -> tuple[Child, Child]:
    one = Child(first)
    time.sleep(delay)
    return one, Child(second)


def _same_weights(run: Path, expected: Path) -> None:
    name = "best.safetensors"
    if (run / name).read_bytes() != (expected / name).read_bytes():
        raise Failure(f"{name} differs from that of a lone training")
    left = [path.name for path in run.rglob("*.partial")]
    if left:
        raise Failure(f"{left} are left")


def _one_folder(shared: Shared, folder: Path, delay: float) -> None:
    """Exactly one trains; the other names the process, or finds the folder not empty."""
    words = training(shared.scene, folder / "run", *_WORDS["run"])
    children = _start(words, words, delay)
    outcomes = [child.wait() for child in children]
    if sorted(outcome.code for outcome in outcomes) != [0, 2]:
        raise Failure(f"exit codes {[outcome.code for outcome in outcomes]} of two trainings")
    winner, loser = sorted(range(2), key=lambda i: outcomes[i].code)
    outcomes[loser].check((2,), f"in use by process {children[winner].process}", "is not empty")
    _same_weights(folder / "run", shared.run)


def _one_cache(shared: Shared, folder: Path, delay: float) -> None:
    """Both fill one cache of features; a third training uses it."""
    cache = ["--cache", str(folder / "cache")]
    outs = [folder / name for name in "abc"]
    calls = [training(shared.scene, out, *_WORDS["frozen"], *cache) for out in outs]
    for child in _start(calls[0], calls[1], delay):
        child.wait().check((0,))
    command(*calls[2]).check((0,))
    for out in outs:
        _same_weights(out, shared.frozen)


def _complete_and_report(shared: Shared, folder: Path, delay: float) -> None:
    """Both read one run; complete writes what it writes alone."""
    run, out = folder / "run", folder / "out"
    shutil.copytree(shared.run, run)
    report, complete = ["report", str(run)], ["complete", str(run), "-o", str(out)]
    first, second = (report, complete) if delay < 0.1 else (complete, report)
    for child in _start(first, second, delay):
        child.wait().check((0,))
    if out.read_bytes() != shared.completed:
        raise Failure("complete beside report wrote other labels")
    if not (run / "report.html").read_bytes().rstrip().endswith(b"</html>"):
        raise Failure("report.html is not whole")
