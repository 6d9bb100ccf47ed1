"""Imports point one way, as docs/architecture.md says."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "partlabel"

# each room may use the ones before it, and itself
ROOMS = [
    {"version", "allocation"},
    {"errors", "ranges"},
    {"files", "randomness", "terminal", "drawing"},
    {"labels"},
    {"images", "memory"},
    {"formats"},
    {"simulate", "scenes", "metrics", "calibrate", "guarantee", "pointing", "cooccurrence"},
    {"inspection"},
    {"display"},
    {"torchvision_shim", "schedule", "interruption", "numerics"},
    {"data", "losses", "similarity"},
    {"models"},
    {"features", "methods", "ema"},
    {"checkpoint", "settings", "catalog"},
    {"optimizers", "run", "prediction"},
    {"watching", "trainer", "selection"},
    {"inputs"},
    {"training"},
    {"scoring"},
    {"rounds", "completion"},
    {"bench", "report"},
    {"demo"},
    {"cli_training"},
    {"cli"},
    {"__main__"},
]


def imports(path: Path) -> set[str]:
    """The rooms of ours that a file uses."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "partlabel":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("partlabel."):
            found.add((node.module or "").split(".")[1])
    return found


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_imports_point_one_way() -> None:
    level = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
    for path in SOURCE.rglob("*.py"):
        room = room_of(path)
        if room == "__init__":
            continue
        for used in imports(path) - {room}:
            assert level[used] < level[room], f"{path} uses {used}"


def test_every_room_is_listed() -> None:
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert rooms == set().union(*ROOMS)


def test_every_public_name_can_be_the_first_that_is_used() -> None:
    """Each in a process of its own: no module may rely on another having been imported."""
    names = ["heads", "losses", "methods", "metrics", "simulate", "scenes", "load", "train"]
    code = "import sys, partlabel; assert getattr(partlabel, sys.argv[1]) is not None"
    calls = [[sys.executable, "-c", code, name] for name in names]
    running = [subprocess.Popen(call, stderr=subprocess.DEVNULL) for call in calls]
    failed = [n for n, process in zip(names, running, strict=True) if process.wait() != 0]
    assert failed == []


def test_help_and_mistakes_do_not_import_torch() -> None:
    code = (
        "import sys; from partlabel.cli import main;"
        "codes = [main(['--help']), main(['inspct']), main(['convert'])];"
        "assert codes == [0, 2, 2], codes;"
        "heavy = {'torch', 'pyarrow', 'scipy', 'numpy'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Did you mean 'inspect'" in done.stderr
