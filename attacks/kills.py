"""Processes killed without warning: a training ends in the same bits, files are old or new."""

import http.client
import shutil
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from attacks import calls
from attacks.harness import TINY, Child, Failure, command, make_scene, training
from attacks.pages import Page

COUNT = 350  # with more than 500 kills
ATTACKS = "kills"
LIMIT = 60

_OPTIONS = {
    "em-apl": ["warmup=1"],
    "role-li": ["warmup=1"],
    "sst": ["start=1", "channels=8"],
    "hst": ["start=1", "channels=8", "prototypes=2"],
    "sarb": ["start=1", "channels=8", "prototypes=2"],
    "lac": ["width=16", "queue=8", "expected=3"],
}
_MOST = 5  # kills of one training
_EARLIER = 3  # verdicts of a page before the one that is killed
COMMANDS = (
    *("complete", "convert", "edit", "embed", "evaluate", "merge", "predict", "report"),
    "simulate",
    *calls.NAMES,
)


@dataclass(frozen=True)
class Shared:
    """What undisturbed processes leave."""

    scene: Path
    run: Path
    trainings: dict[str, list[str]]
    whole: dict[str, Path]
    cpu: dict[str, float]
    commands: dict[str, "Written"]


@dataclass(frozen=True)
class Written:
    """A command, and the files that it replaces: before and after."""

    words: list[str]
    before: dict[str, bytes]
    after: dict[str, bytes]
    cpu: float


def _trainings() -> dict[str, list[str]]:
    from partlabel.learning.methods import METHODS

    words = {}
    for name in METHODS:
        options = [word for value in _OPTIONS.get(name, ()) for word in ("--set", value)]
        words[name] = ["--method", name, "--epochs", "4", *options]
    words["lbfgs"] = ["--method", "an", "--frozen", "--optimizer", "lbfgs", "--epochs", "8"]
    words["lbfgs"] += ["--weight-decay", "0.0001"]
    words["members"] = ["--method", "partial-bce", "--set", "curriculum=d", "--set", "members=2"]
    words["members"] += ["--epochs", "3"]
    words["auto"] = ["--method", "auto"]
    return words


def prepare(folder: Path) -> Shared:
    """A run for the commands; trainings are made when they are first needed."""
    scene = make_scene(folder)
    (scene / "cells.csv").write_text("image,class\n")
    run = folder / "run"
    command(*training(scene, run, "--method", "bce", "--epochs", "1")).check((0,))
    calls.answer(run, scene)
    with Page(run) as page:  # a review with verdicts, whose server was killed
        page.wait_until_ready()
        for number in range(_EARLIER):
            page.judge(f"earlier-{number}", [(number, _first_class(page), 1)])
        page.child.kill()
        page.child.wait()
    shared = Shared(scene, run, _trainings(), {}, {}, {})
    for name, words in shared.trainings.items():
        out = folder / "whole" / name
        outcome = command(*_training(scene, out, words), before=_save_often)
        outcome.check((0,))
        shared.whole[name], shared.cpu[name] = out, outcome.cpu
    for name in COMMANDS:
        shared.commands[name] = _written(name, shared, folder)
    return shared


def _training(scene: Path, out: Path, words: list[str]) -> list[str]:
    # lbfgs takes all images at once, and auto chooses: the option of TINY would contradict them
    call = [*training(scene, out, *words), "--resume"]
    if {"lbfgs", "auto"} & set(words):
        at = call.index("--batch")
        del call[at : at + 2]
    return call


def _save_often() -> None:
    from partlabel.training import trainer

    trainer._SAVE_EVERY = 0.2


def _words(name: str, scene: Path, run: Path, out: Path) -> list[str]:
    labels = str(scene / "partial.csv")
    if name in calls.NAMES:
        return calls.words_of(name, run, scene, out)
    return {
        "complete": [
            *("complete", str(run), "-o", str(out / "a"), "--overwrite"),
            *("--min-precision", "0.5"),
        ],
        "edit": ["edit", labels, str(out / "a.csv"), "--unknown", str(scene / "cells.csv")],
        "embed": [
            "embed",
            str(scene / "images"),
            "-o",
            str(out / "a.npz"),
            "--overwrite",
            *TINY[:6],
        ],
        "evaluate": ["evaluate", str(run), "--reserved", "--json", str(out / "a")],
        "simulate": [
            *("simulate", labels, str(out / "a"), "--to", "csv"),
            *("--strategy", "partial", "--proportion", "0.5"),
        ],
        "convert": ["convert", labels, str(out / "a"), "--to", "coco"],
        "merge": [
            *("merge", labels, str(scene / "labels.csv"), "-o", str(out / "a")),
            *("--to", "csv", "--conflict", "ours"),
        ],
        "predict": [
            "predict",
            str(run),
            str(scene / "images"),
            "-o",
            str(out / "a"),
            "--overwrite",
        ],
        "report": ["report", str(run)],
    }[name]


def _written(name: str, shared: Shared, folder: Path) -> Written:
    out = folder / f"{name}-files"
    out.mkdir()
    words = _words(name, shared.scene, shared.run, out)
    outcome = command(*words)
    outcome.check((0,))
    if name == "report":
        after = {"report.html": (shared.run / "report.html").read_bytes()}
        (shared.run / "report.html").unlink()
    else:
        after = calls.contents(out)
    before = {file: f"old {file}\n".encode() for file in after}
    if name in calls.FOLDERS:
        before = {}
    return Written(words, before, after, outcome.cpu)


def attack(shared: Shared, folder: Path, rng: Random) -> int:
    """One training killed several times, or one command killed once; return how often in fact."""
    choice = rng.random()
    if choice < 0.45:
        return _kill_training(shared, folder, rng)
    if choice < 0.55:
        return _kill_page(shared, folder, rng)
    return _kill_command(shared, folder, rng)


def _kill_training(shared: Shared, folder: Path, rng: Random) -> int:
    name = rng.choice(sorted(shared.trainings))
    out, kills = folder / "run", 0
    words = _training(shared.scene, out, shared.trainings[name])
    for _ in range(rng.randint(2, _MOST)):
        child = Child(words, before=_save_often)
        kills += child.kill_after(rng.uniform(0.02, 1.0) * shared.cpu[name])
        child.wait().check((0, -9))
    command(*words, before=_save_often).check((0,))
    _same_run(name, shared.whole[name], out)
    return kills


def _same_run(name: str, whole: Path, cut: Path) -> None:
    from partlabel.training.checkpoint import load_state, same

    for file in sorted(path.relative_to(whole) for path in whole.rglob("*.safetensors")):
        if not (cut / file).is_file():
            raise Failure(f"{name}: {file} is missing")
        states = [_without_speed(load_state(run / file)) for run in (whole, cut)]
        if not same(*states):
            raise Failure(f"{name}: {file} differs from that of an undisturbed training")
    left = [path.name for path in cut.rglob("*.partial")]
    if left:
        raise Failure(f"{name}: {left} are left")


def _without_speed(state: Any) -> Any:
    """The only figure that may differ."""
    if isinstance(state, dict) and "progress" in state:
        for record in state["progress"]["history"]:
            record.pop("images_per_second", None)
    return state


def _kill_command(shared: Shared, folder: Path, rng: Random) -> int:
    name = rng.choice(sorted(shared.commands))
    written = shared.commands[name]
    run, out = shared.run, folder
    if name in ("report", "review"):
        run = folder / "run"
        calls.copy_run(shared.run, run)
        out = run if name == "report" else folder / "out"
        out.mkdir(exist_ok=True)
    for file, content in written.before.items():
        (out / file).write_bytes(content)
    child = Child(_words(name, shared.scene, run, out))
    # near the end, files are replaced
    killed = child.kill_after(written.cpu * rng.uniform(0.5, 1.05))
    child.wait().check((0, -9))
    if name in calls.FOLDERS:
        _whole_folder(name, written, out)
        shutil.rmtree(out / "a", ignore_errors=True)
    else:
        _whole_files(name, written, out)
    command(*_words(name, shared.scene, run, out)).check((0,))
    for file, content in written.after.items():
        if name != "report" and (out / file).read_bytes() != content:
            raise Failure(f"{name} after a kill: {file} differs")
    return int(killed)


def _whole_files(name: str, written: Written, out: Path) -> None:
    """Each file is the old one or the new one; of several, later ones may be missing."""
    new = []
    for number, (file, before) in enumerate(sorted(written.before.items())):
        path = out / file
        content = path.read_bytes() if path.is_file() else None
        if content is None and (number == 0 or name not in calls.GROUPS):
            raise Failure(f"{name}: {file} is gone")
        is_new = content == written.after[file] or (name == "report" and _is_report(content))
        if content not in (None, before) and not is_new:
            raise Failure(f"{name}: {file} is neither the old nor the new one")
        new.append(is_new)
    if any(new[1:]) and not new[0]:
        raise Failure(f"{name}: a file is newer than the first")


def _whole_folder(name: str, written: Written, out: Path) -> None:
    """The new folder is there with all of its files, or not at all."""
    there = {file: data for file, data in calls.contents(out).items() if file.startswith("a/")}
    if (out / "a").exists() and there != written.after:
        raise Failure(f"{name}: the folder is there, but not whole")


def _first_class(page: Page) -> str:
    return str(page.get("/api/classes")["classes"][0]["name"])


def _kill_page(shared: Shared, folder: Path, rng: Random) -> int:
    """Kill the server while verdicts arrive: those that were confirmed are kept, acts are whole."""
    run, kept, sent = folder / "run", set[str](), dict[str, int]()
    calls.copy_run(shared.run, run)
    out = folder / "out"
    out.mkdir()
    kills = 0
    for start in range(rng.randint(1, 3)):
        with Page(run) as page:
            page.wait_until_ready()
            name = _first_class(page)

            def judge(start: int = start, page: Page = page, name: str = name) -> None:
                for number in range(10_000):
                    act, size = f"act-{start}-{number:06}", 1 + number % 3
                    sent[act] = size
                    try:
                        page.judge(act, [(row, name, 1) for row in range(size)])
                    except (OSError, http.client.HTTPException):
                        return
                    kept.add(act)

            thread = threading.Thread(target=judge)
            thread.start()
            time.sleep(rng.uniform(0, 0.4))
            page.child.kill()
            thread.join()
            kills += page.child.wait().code == -9  # SIGKILL
    command(*calls.words_of("review", run, shared.scene, out)).check((0,))
    _compare_acts(run, kept, sent)
    return kills


def _compare_acts(run: Path, kept: set[str], sent: dict[str, int]) -> None:
    """All acts that were confirmed are in the journal, and each act there has all its verdicts."""
    with closing(sqlite3.connect(run.with_name(f"{run.name}.review") / "journal.sqlite")) as db:
        rows = db.execute("SELECT id FROM acts LEFT JOIN verdicts ON act = number").fetchall()
    found = Counter(id for (id,) in rows)
    lost = kept - set(found)
    if lost:
        raise Failure(f"review: {len(lost)} acts that were confirmed are lost")
    parts = [act for act in found.keys() & sent.keys() if found[act] != sent[act]]
    if parts:
        raise Failure(f"review: of {len(parts)} acts only some verdicts are kept")
    if not all(f"earlier-{number}" in found for number in range(_EARLIER)):
        raise Failure("review: verdicts of an earlier page are lost")


def _is_report(content: bytes | None) -> bool:
    return bool(content) and content.rstrip().endswith(b"</html>")  # type: ignore[union-attr]
