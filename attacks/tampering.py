"""Damaged files in the folder of a run: the figures of the intact run, or a clear error."""

import csv
import json
import shutil
import sqlite3
import zipfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from attacks import calls
from attacks.harness import TINY, Failure, command, make_scene, training
from attacks.pages import Page
from partlabel import read_labels

COUNT = 2_000
ATTACKS = "damaged files"
LIMIT = 60

_RUNS = {
    "bce": ["--method", "bce"],
    "frozen": ["--method", "bce", "--frozen"],
    "sr": ["--method", "sr"],
    "em-apl": ["--method", "em-apl", "--set", "warmup=1"],
    "lac": ["--method", "lac", "--set", "width=16", "--set", "queue=8", "--set", "expected=3"],
    "members": ["--method", "partial-bce", "--set", "curriculum=d", "--set", "members=2"],
    "auto": ["--method", "auto"],
    "given": ["--method", "bce"],  # trained on a file of features, with a teacher
}
UNPROTECTED = ", no checksum"  # then other figures are allowed, but no crash


@dataclass(frozen=True)
class Shared:
    """Intact runs, finished and not, and what commands make of them."""

    scene: Path
    runs: dict[str, Path]
    figures: dict[tuple[str, str], bytes]


def prepare(folder: Path) -> Shared:
    """Train, stop some trainings within the second epoch, and keep the figures."""
    scene = make_scene(folder)
    shared = Shared(scene, {}, {})
    _write_inputs(scene)
    for name in _RUNS:
        run = folder / name
        command(*_training(scene, run, name)).check((0,))
        shared.runs[name] = run
        cut = folder / f"{name}-cut"
        command(*_training(scene, cut, name), before=_stop).check((1,))
        shared.runs[f"{name}-cut"] = cut
    for name, run in shared.runs.items():
        if not name.endswith("-cut"):
            calls.answer(run, scene, _features(name, scene))
        if name in _REVIEWED:
            _review(run)
        for what in _commands(name):
            copy = folder / "copy"
            copy.mkdir()
            calls.copy_run(run, copy / "run")
            outcome, shared.figures[name, what] = _call(shared, name, what, copy / "run", copy)
            outcome.check((0,))
            shutil.rmtree(copy)
    return shared


def _review(run: Path) -> None:
    """Verdicts, random labels and a new class with a test; the server is killed in the end."""
    with Page(run) as page:
        page.wait_until_ready()
        name = page.get("/api/classes")["classes"][0]["name"]
        board = page.post("/api/board", {"name": name, "size": 10, "random": 4})
        for number, cell in enumerate(board["cells"]):
            page.judge(f"act-{number:06}", [(cell["row"], name, 1)])
        page.post("/api/undo", {"id": "undo-0001", "reviewer": "Ada"})
        page.post("/api/classes", {"name": "new", "reviewer": "Ada"})
        page.judge("act-of-new", [(row, "new", 1 if row % 2 else -1) for row in range(12)])
        page.child.kill()
        page.child.wait()


def _write_inputs(scene: Path) -> None:
    """Features of the images, and scores of a teacher for two classes."""
    features = scene / "features.safetensors"
    command("embed", scene / "images", "-o", features, *TINY[:6]).check((0,))
    table, rng = read_labels(scene / "partial.csv"), Random(0)
    with (scene / "teacher.csv").open("w", newline="") as stream:
        lines = [(i, name, rng.random()) for i in table.ids for name in table.classes[:2]]
        csv.writer(stream).writerows([("image", "class", "score"), *lines])


def _training(scene: Path, run: Path, name: str) -> list[str]:
    """The words of a training; ``auto`` has neither batch nor epochs, features no backbone."""
    words = training(scene, run, *_RUNS[name])
    if name in ("auto", "given"):
        at = words.index("--batch" if name == "auto" else "--images")
        del words[at : words.index("--out")]
    if name == "given":
        words += _inputs(scene)
    return words if name == "auto" else [*words, "--epochs", "2"]


def _inputs(scene: Path) -> list[str]:
    return [
        *("--features", str(scene / "features.safetensors")),
        *("--teacher", str(scene / "teacher.csv")),
    ]


def _stop() -> None:
    """Let a training fail after a step of the second epoch, with a checkpoint."""
    from partlabel.training.auto import automatic
    from partlabel.training.trainer import Trainer

    def refuse(*_: object) -> None:
        raise OSError("stopped")

    automatic._choose = refuse  # type: ignore[assignment]  # candidates are trained, none chosen
    original = Trainer._save

    def save_and_stop(self: Any, *, force: bool = False) -> None:
        is_candidate = self.settings.epochs != 2
        at_stop = (self.progress.epoch, self.progress.step) == (1, 1) and not is_candidate
        original(self, force=force or at_stop)
        if at_stop:
            raise OSError("stopped")

    Trainer._save = save_and_stop  # type: ignore[method-assign]


COMMANDS = {
    "evaluate": 4,
    "complete": 4,
    "predict": 4,
    "report": 1,
    "resume": 2,
    "suggest": 2,
    "answers": 2,
    "plan": 1,
    "more": 2,
    "review": 4,
    **{f"export-{to}": 0.4 for to in calls.EXPORTS},
}
"""Commands, and how often they are chosen."""

_REVIEWED = ("bce", "frozen")  # runs with verdicts; the others have a review without any
_ON_FEATURES = {"more", "export-cleanlab", "export-csv"}  # that do without images and teachers


def _commands(name: str) -> list[str]:
    """The commands that an intact run accepts."""
    if name.endswith("-cut"):
        return ["resume"]
    needs_images = {"review", *(f"export-{to}" for to in calls.EXPORTS)} - _ON_FEATURES
    return [what for what in COMMANDS if name != "given" or what not in needs_images]


def _features(name: str, scene: Path) -> tuple[str, ...]:
    return ("--features", str(scene / "features.safetensors")) if name == "given" else ()


def _call(shared: Shared, name: str, what: str, run: Path, folder: Path) -> tuple[Any, bytes]:
    """The outcome of a command, and the figures that it wrote."""
    target = folder / "out"
    target.mkdir()
    out = target / "a"
    finished = name.removesuffix("-cut")
    images = _inputs(shared.scene) if finished == "given" else [str(shared.scene / "images")]
    words: dict[str, list[str | Path]] = {
        "evaluate": ["evaluate", run, "--reserved", "--json", out],
        "complete": ["complete", run, "-o", out, "--overwrite", "--min-precision", "0.5"],
        "predict": ["predict", run, *images, "-o", out],
        "report": ["report", run],
        "resume": [*_training(shared.scene, run, finished), "--resume"],
    }
    if what in calls.NAMES:
        more = _features(name, shared.scene)
        outcome = command(*calls.words_of(what, run, shared.scene, target, more))
    else:
        outcome = command(*words[what])
    if what == "resume":
        best = run / "best.safetensors"
        return outcome, best.read_bytes() if best.is_file() else b""
    written = calls.contents(target)
    return outcome, b"".join(written[file] for file in sorted(written))


def attack(shared: Shared, folder: Path, rng: Random) -> None:
    """Damage one file of a copy, and run one command on it."""
    name = rng.choice(sorted(shared.runs))
    run = folder / "run"
    calls.copy_run(shared.runs[name], run)
    possible = _commands(name)
    what = rng.choices(possible, [COMMANDS[one] for one in possible])[0]
    review = run.with_name("run.review")
    home = review if what == "review" and review.is_dir() and rng.random() < 0.8 else run
    files = sorted(path for path in home.rglob("*") if path.is_file() and path.name != ".lock")
    path = rng.choice(files)
    how = damage(path, rng)
    outcome, figures = _call(shared, name, what, run, folder)
    changed = f"{name}/{path.relative_to(folder)} ({how})"
    try:
        outcome.check((0, 1, 2), str(run))
    except Failure as failure:
        raise Failure(f"{changed}: {failure}") from None
    intact = shared.figures[name, what]
    # a finished run is not trained again, so its damaged weights stay until they are read
    untouched = what == "resume" and path.name == "best.safetensors"
    if outcome.code == 0 and figures != intact and not untouched and UNPROTECTED not in how:
        raise Failure(f"{changed}: {what} ended with exit code 0 and other figures")


def damage(path: Path, rng: Random) -> str:
    """Change a file; return how."""
    kinds = ["flip", "cut", "empty", "zip", "text", "remove"]
    if path.suffix == ".json":
        kinds = ["json"] * 12 + kinds
    elif path.suffix == ".safetensors":
        kinds = ["tensors"] * 6 + ["flip"] * 4 + kinds
    elif path.suffix == ".csv":
        kinds = ["cell"] * 6 + kinds
    elif path.suffix == ".sqlite":
        kinds = ["rows"] * 12 + kinds
    elif {"memory", "diary"} & set(path.parts) or path.parent.name.startswith("memory"):
        kinds = ["cut", "empty", "zip", "text", "remove"]
    kind = rng.choice(kinds)
    content = path.read_bytes()
    match kind:
        case "flip":
            data = bytearray(content)
            for _ in range(rng.choice((1, 1, 5))):
                end = rng.choice((min(len(data), 400), len(data)))
                if data:
                    data[rng.randrange(end)] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        case "cut":
            path.write_bytes(content[: rng.randrange(len(content) + 1)])
        case "empty":
            path.write_bytes(b"")
        case "zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("a.npy", bytes(100))
        case "text":
            path.write_text(rng.choice(("hello\n", "[1, 2]", "{}", "null", "a,b\n1\n" * 50)))
        case "remove":
            path.unlink()
        case "json":
            return _damage_json(path, rng)
        case "tensors":
            return _damage_tensors(path, rng)
        case "cell":
            return _damage_cell(path, rng)
        case "rows":
            return _damage_rows(path, rng)
    return kind + (UNPROTECTED if path.name.startswith("journal.sqlite") else "")


_VALUES: tuple[Any, ...] = (None, -1, 10**30, 1e308, "x", "", [], {}, True, [None], float("nan"))


_CELLS: tuple[Any, ...] = (None, -1, 7, 2**62, 1e308, "x", "", "7", "\0", b"\xff\xfe", "chosen")


def _damage_json(path: Path, rng: Random) -> str:
    """One value replaced, removed or added, in the record or inside its settings."""
    document = json.loads(path.read_bytes())
    part, at = document, path.name
    key = _any_key(part, rng)
    while isinstance(part[key], dict | list) and part[key] and rng.random() < 0.7:
        part, at = part[key], f"{at}.{key}"
        key = _any_key(part, rng)
    action = rng.choice(("set", "set", "set", "remove", "add"))
    if action == "remove":
        del part[key]
    elif action == "add" and isinstance(part, dict):
        part["new"] = key = rng.choice(_VALUES)
    else:
        part[key] = value = rng.choice(_VALUES)
        action = f"set {value!r}"
    if rng.random() < 0.5:
        document.pop("checksum", None)
        action += UNPROTECTED
    path.write_text(json.dumps(document))
    return f"{at}.{key} {action}"


def _any_key(part: Any, rng: Random) -> Any:
    return rng.choice(list(part) if isinstance(part, dict) else list(range(len(part))))


def _damage_tensors(path: Path, rng: Random) -> str:
    """Tensors that are missing, or have another shape or type; the checksum stays."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        tree = json.loads(file.metadata()["tree"])
    tensors = load_file(path)
    if rng.random() < 0.3:
        what, state = "tree", tree["$state"]
        if isinstance(state, dict) and state:
            state[rng.choice(sorted(state))] = rng.choice((None, 1, "x", [], {}))
    else:
        name = rng.choice(sorted(tensors) or ["new"])
        tensor = tensors.get(name, torch.zeros(1))
        what = rng.choice(("missing", "shape", "type", "zeros", "huge"))
        match what:
            case "missing":
                tensors.pop(name, None)
            case "shape":
                tensors[name] = torch.cat([tensor.reshape(-1), tensor.reshape(-1)])
            case "type":
                tensors[name] = tensor.to(rng.choice((torch.float64, torch.int8, torch.bool)))
            case "zeros":
                tensors[name] = torch.zeros_like(tensor)
            case _:
                tensors[name] = tensor.double().add(1).mul(1e30).to(tensor.dtype)
    if rng.random() < 0.3:
        tree = tree["$state"]
        what += UNPROTECTED
    save_file(tensors, path, metadata={"tree": json.dumps(tree)})
    return f"tensors: {what}"


def _damage_cell(path: Path, rng: Random) -> str:
    with path.open(newline="") as stream:
        lines = list(csv.reader(stream))
    line, word = rng.choice(lines), rng.choice(("x", "", "nan", "1e999", "\0", "<b>"))
    if line:
        line[rng.randrange(len(line))] = word
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows(lines)
    return f"cell {word!r}"


def _damage_rows(path: Path, rng: Random) -> str:
    """Values of a journal that the program does not write, or a table or rows that are gone."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE sql != ''")]
        table = rng.choice([name for name in tables if not name.startswith("sqlite_")])
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        column = rng.choice(columns)
        value = rng.choice(_CELLS)
        statement = rng.choice(
            (
                *(f"UPDATE OR REPLACE {table} SET {column} = ?",) * 6,
                *(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = 1",) * 3,
                f"DELETE FROM {table} WHERE ? IS NOT 'never'",
                f"DROP TABLE {table}",
                f"ALTER TABLE {table} RENAME COLUMN {column} TO other",
            )
        )
        try:
            db.execute(statement, (value,) if "?" in statement else ())
        except sqlite3.Error as error:
            return f"nothing: {error}"
    return f"{statement} {value!r}{UNPROTECTED}"
