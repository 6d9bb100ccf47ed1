"""The page on fidelity is true: every file, name, spec and setting on it exists."""

import ast
import re
import runpy
from functools import cache
from inspect import signature
from pathlib import Path

import pytest
import torch

from partlabel.learning.methods import METHODS
from partlabel.output.bench import read_spec
from test_architecture import ROOMS
from test_docs import ROOT, inline_code

PAGE = ROOT / "docs" / "reference" / "fidelity.md"
SPECS = ROOT / "benchmarks" / "specs"
FILE = re.compile(rf"((?:{'|'.join(ROOMS)}|tests|benchmarks|docs)/[\w./-]+\.py)(?::(\w+))?")
SECTION = re.compile(r"^## (\d{3}): .*?\(`([^)]+)`\)$(.*?)(?=^## )", re.MULTILINE | re.DOTALL)


@cache
def names_in(path: Path) -> set[str]:
    """The functions, classes and methods that a file defines."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def file_of(path: str) -> Path:
    """A file of the package or of the repository."""
    own = path.startswith(("tests/", "benchmarks/", "docs/"))
    return ROOT / path if own else ROOT / "src" / "partlabel" / path


def problems(text: str) -> list[str]:
    """What a page says is there, and is not."""
    found = []
    for code in inline_code(text):
        if match := FILE.fullmatch(code):
            path, name = file_of(match[1]), match[2]
            if not path.is_file() or (name and name not in names_in(path)):
                found.append(code)
        elif code.endswith(".yaml") and not (SPECS / code).is_file():
            found.append(code)
        elif code.endswith(".py") or ".py:" in code:
            found.append(code)  # a path that is not written as the others are
    return found


def test_every_file_and_spec_exists() -> None:
    text = PAGE.read_text()
    assert problems(text) == []
    assert len(FILE.findall(text)) > 60


def test_a_wrong_name_would_be_found() -> None:
    wrong = "`models/heads/none.py`, `models/heads/graph.py:Nothing`, `nothing.yaml`, `nothing.py`"
    right = "`models/heads/graph.py:GraphRefiner`, `models/heads/graph.py`, `saliency.yaml`"
    assert len(problems(wrong)) == 4
    assert problems(right) == []


def test_every_spec_of_the_papers_can_be_read_and_is_on_the_page(tmp_path: Path) -> None:
    """Specs that cite a paper in their first line."""
    text, authors = PAGE.read_text(), ("Wang et al.", "Xie et al.", "Durand et al.", "Huynh and")
    for path in sorted(SPECS.glob("*.yaml")):
        features = tmp_path if "--features" in path.read_text() else None
        read_spec(path, tmp_path / "labels.csv", None if features else tmp_path, features)
        first = path.read_text().splitlines()[0]
        if any(author in first for author in authors) or "EM + APL paper" in first:
            assert f"`{path.name}`" in text, path.name


@pytest.mark.parametrize("name", ["imcl*", "partial_*", "labelling*", "relabelling*"])
def test_studies_of_two_papers_draw_the_same_number_of_labels_in_each_image(name: str) -> None:
    """Those of Durand et al. and of Huynh and Elhamifar, as these papers do."""
    paths = sorted(SPECS.glob(f"{name}.yaml"))
    assert paths
    for path in paths:
        for strategy in read_spec(path, ROOT / "labels.csv", ROOT).strategies:
            if strategy.strategy == "partial":
                assert strategy.per_image, path.name


@pytest.mark.parametrize("name", ["imcl", "imcl_ablation", "imcl_forms"])
def test_the_papers_form_of_imcl_is_in_its_studies(name: str) -> None:
    form = {"lambda_y": 1, "lambda_f": 0.5, "scale": "loss", "gradient": "both", "features": "raw"}
    spec = read_spec(SPECS / f"{name}.yaml", ROOT / "labels.csv", ROOT)
    rows = [one.options for one in spec.methods if one.method == "imcl"]
    assert [row for row in rows if form.items() <= row.items() and "dictionary" not in row]


@pytest.mark.parametrize("section", SECTION.findall(PAGE.read_text()), ids=lambda one: one[0])
def test_settings_exist(section: tuple[str, str, str]) -> None:
    """A setting in a table is one of the paper's methods, or of a method named in the same row."""
    _, names, text = section
    own = names.split("`, `")
    for row in text.splitlines():
        codes = inline_code(row)
        methods = [METHODS[name] for name in (*own, *codes) if name in METHODS]
        settings = set().union(*(signature(method).parameters for method in methods))
        for name in (code.partition("=")[0] for code in codes if re.fullmatch(r"\w+=\S+", code)):
            assert name in settings, f"{name}: {row}"


def test_drawings_of_losses() -> None:
    """The functions that are drawn: g(0.1) = 5 and g(1) = 1; EM leaves undecided labels alone."""
    space = runpy.run_path(str(ROOT / "docs" / "images" / "loss_functions.py"))
    for gamma in space["GAMMAS"]:
        assert space["weight"](0.1, gamma) == pytest.approx(5, rel=1e-3)
        assert space["weight"](1.0, gamma) == pytest.approx(1, rel=1e-3)
    slopes = space["gradient"]("entropy_maximization", 0, torch.tensor([-1.0, 0.0, 1.0]))
    assert slopes.tolist() == pytest.approx([-0.19661, 0, 0.19661], abs=1e-4)
    assert space["gradient"]("assume_negative", 0, torch.tensor([0.0])).tolist() == [0.5]
