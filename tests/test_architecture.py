"""Imports point one way, as docs/architecture.md says."""

import ast
import importlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import partlabel

SOURCE = Path(__file__).parent.parent / "src" / "partlabel"

# each room may use the ones before it, and itself
ROOMS = [
    "base",
    "images",
    "labels",
    "metrics",
    "models",
    "learning",
    "training",
    "judging",
    "output",
    "cli",
]
SKLEARN = "sklearn"  # a file beside the rooms, which nothing uses
OUTSIDE = {"version"}  # another file beside the rooms that all of them may use


def imports(path: Path) -> set[str]:
    """The rooms that a file uses."""
    used = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "partlabel":
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("partlabel."):
            used.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] == "partlabel" for alias in node.names), path
    return used - OUTSIDE


def test_imports_point_one_way() -> None:
    for number, room in enumerate(ROOMS):
        for path in (SOURCE / room).rglob("*.py"):
            assert imports(path) <= {*ROOMS[: number + 1]}, path
    assert imports(SOURCE / f"{SKLEARN}.py") <= {*ROOMS[:-1]}


def test_every_room_is_listed_and_says_what_it_is_for() -> None:
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == {*ROOMS}
    for room in ROOMS:
        assert ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text())), room
    files = {path.stem for path in SOURCE.glob("*.py")}
    assert files == {"__init__", "__main__", SKLEARN, *OUTSIDE}


def test_no_two_files_have_the_same_name() -> None:
    stems = Counter(path.stem for path in SOURCE.rglob("*.py"))
    del stems["__init__"]
    assert [stem for stem, times in stems.items() if times > 1] == []


@pytest.mark.parametrize(
    "name", ["formats", "heads", "losses", "methods", "scenes", "similarity", "simulate"]
)
def test_a_short_name_is_the_module_itself(name: str) -> None:
    short, below = importlib.import_module(f"partlabel.{name}"), getattr(partlabel, name)
    assert short is below
    assert short is importlib.import_module(short.__name__)
    assert short.__spec__ is not None
    assert short.__spec__.name == short.__name__ != f"partlabel.{name}"


def test_below_a_short_name_nothing_is_defined_twice() -> None:
    one = importlib.import_module("partlabel.heads.linear")
    assert one.Linear is partlabel.heads.Linear


def test_the_stub_lists_the_public_names() -> None:
    fixed = "train load evaluate predict complete report bench suggest export embed read_labels"
    fixed += " write_labels LabelTable PRESENT ABSENT UNKNOWN losses heads metrics methods labels"
    assert set(fixed.split()) <= set(partlabel.__all__)
    for name in partlabel.__all__:
        assert getattr(partlabel, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        partlabel.trian  # type: ignore[attr-defined]  # noqa: B018


def test_every_public_name_can_be_the_first_that_is_used() -> None:
    """Each in a process of its own: no module may rely on another having been imported."""
    names = ["heads", "losses", "methods", "metrics", "simulate", "scenes", "evaluate", "train"]
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
