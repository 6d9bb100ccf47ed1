"""The exact versions for development: they cover all requirements, and have hashes."""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
NOT_PINNED = re.compile(r"nvidia-|cuda-|triton")  # torch pins them, in its builds with CUDA


def pins(text: str) -> dict[str, Version]:
    return {name: Version(version) for name, version in re.findall(r"(?m)^(\S+)==(\S+)", text)}


PINNED = pins((ROOT / "constraints.txt").read_text())


def own_requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    return [Requirement(text) for text in [*project["dependencies"], *extras]]


def all_requirements(first: Iterable[Requirement]) -> Iterator[tuple[str, Requirement]]:
    """Requirements of this environment, with who has them, as far as packages are installed."""
    waiting, done = [("pyproject.toml", requirement) for requirement in first], set()
    while waiting:
        owner, requirement = waiting.pop()
        yield owner, requirement
        name = canonicalize_name(requirement.name)
        key = (name, tuple(sorted(requirement.extras)))
        if key in done:
            continue
        done.add(key)
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of an extra that is not installed
            continue
        for text in package.requires or []:
            needed = Requirement(text)
            extras = [{"extra": extra} for extra in ("", *requirement.extras)]
            if needed.marker is None or any(needed.marker.evaluate(extra) for extra in extras):
                waiting.append((f"{name} {package.version}", needed))


def test_versions_fit_the_project() -> None:
    for requirement in own_requirements():
        name = canonicalize_name(requirement.name)
        assert name in PINNED, f"{name} has no version in constraints.txt; run: make lock"
        assert requirement.specifier.contains(PINNED[name]), f"{requirement}; run: make lock"


@pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info[:2] != (3, 11),
    reason="made with Python 3.11 on Linux, and others need other packages",
)
def test_requirements_of_requirements_are_covered() -> None:
    for owner, requirement in all_requirements(own_requirements()):
        name = canonicalize_name(requirement.name)
        if not NOT_PINNED.match(name):
            message = f"{owner} needs {name}, which constraints.txt does not have; run: make lock"
            assert name in PINNED, message


def test_every_version_has_hashes() -> None:
    text = (ROOT / "hashes.txt").read_text()
    assert pins(text) == PINNED
    entries = re.split(r"(?m)^(?=[a-z0-9])", text)[1:]
    assert len(entries) == len(PINNED)
    for entry in entries:
        assert re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n", entry), entry


def test_versions_are_those_of_the_constraints() -> None:
    used = Path(sys.prefix) / "constraints.txt"  # what make installed with
    if not used.is_file() or used.read_text() != (ROOT / "constraints.txt").read_text():
        pytest.skip("this environment was not made with the constraints")
    for name, version in PINNED.items():
        try:
            installed = Version(metadata.version(name))
        except metadata.PackageNotFoundError:  # of an extra that is not installed
            continue
        assert Version(installed.public) == version, f"{name}: remove .venv, and run make again"
