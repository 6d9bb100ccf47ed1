"""The report of a method that compares embeddings and treats unknown labels as present."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from conformance import MethodConformance
from partlabel.base.errors import FileError
from partlabel.labels import LabelTable
from partlabel.labels.formats import read_labels
from partlabel.output import report
from partlabel.output.report.diary_pages import judge_pages
from partlabel.output.report.embedding import cohesion, flatten
from partlabel.training.checkpoint import load_state, save_state
from partlabel.training.run import Run
from partlabel.training.train import train

OPTIONS: dict[str, Any] = {"width": 16, "delta": 0.5, "delta2": 0.5, "queue": 8}


@pytest.fixture(scope="module")
def run(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    call = {
        **MethodConformance.tiny,
        "method": "lac",
        "options": OPTIONS,
        "epochs": 3,
        "reserve": 0,
    }
    out = tmp_path_factory.mktemp("lac") / "run"
    return train(scene / "partial.csv", scene / "images", out, **call)


def test_shows_labels_treated_as_present_and_where_it_looks(run: Run, scene: Path) -> None:
    page = report.build_report(run).read_text()
    assert "Unknown labels that were treated as present" in page
    assert "With --truth, this section also shows how many of them are correct" in page
    assert "Embeddings of labels" in page
    assert "before the second stage" in page
    assert "Where the model looks" in page
    page = report.build_report(run, truth=read_labels(scene / "labels.csv")).read_text()
    assert "how many are correct" in page


@pytest.mark.parametrize("damage", ["shape", "missing", "unexpected"])
def test_weights_of_a_stage_that_do_not_fit_are_named(
    damage: str, run: Run, tmp_path: Path
) -> None:
    """Such as those of another run, which have a valid checksum."""
    copy = Path(shutil.copytree(run.folder, tmp_path / "run"))
    path = copy / "stages" / "1.safetensors"
    weights = load_state(path)
    name = next(iter(weights))
    if damage == "shape":
        weights[name] = torch.stack([weights[name], weights[name]])
    elif damage == "missing":
        del weights[name]
    else:
        weights["head.other"] = weights[name]
    save_state(path, weights)
    with pytest.raises(FileError, match=r"stages/1\.safetensors: its weights do not fit"):
        report.build_report(Run(copy, run.images))


def test_a_run_without_a_second_stage_shows_no_embeddings(scene: Path, tmp_path: Path) -> None:
    options = {"lambda_lac": 0, "width": 16, "delta": 0.5, "base": "an"}
    call: dict[str, Any] = {**MethodConformance.tiny, "method": "lac", "options": options}
    alone = train(scene / "partial.csv", scene / "images", tmp_path / "run", **call)
    page = report.build_report(alone).read_text()
    assert "Embeddings of labels" not in page
    assert "Where the model looks" in page


@given(seed=st.integers(0, 10**6))
def test_pages_are_judged_cell_by_cell(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (5, 4)
    known, true = rng.integers(-1, 2, shape), rng.integers(-1, 2, shape)
    names, classes = [f"{i}" for i in range(5)], [f"c{j}" for j in range(4)]
    page = np.flatnonzero(rng.integers(0, 2, 20))
    figures = judge_pages(
        {1: page}, LabelTable(names, classes, known), LabelTable(names, classes, true)
    )
    judged = right = present = 0
    for cell in range(20):
        i, j = divmod(cell, 4)
        if known[i, j] == 0 and true[i, j] != 0:
            judged += cell in page
            present += true[i, j] == 1
            right += cell in page and true[i, j] == 1
    expected = [right / judged if judged else np.nan, right / present if present else np.nan]
    np.testing.assert_allclose([float(figure[0]) for figure in figures], expected)


def test_flattened_points_are_principal_components() -> None:
    points = np.random.default_rng(0).normal(size=(30, 6)) * np.arange(1, 7)
    expected = PCA(2).fit_transform(points)
    np.testing.assert_allclose(np.abs(flatten(points)), np.abs(expected), atol=1e-9)
    assert flatten(np.ones((3, 1))).shape == (3, 2)


def test_cohesion_is_the_mean_cosine_of_pairs() -> None:
    rng = np.random.default_rng(0)
    points, classes = rng.normal(size=(7, 3)), np.array([0, 0, 1, 1, 1, 2, 0])
    same: list[float] = []
    other: list[float] = []
    for i in range(7):
        for j in range(7):
            if i != j:
                size = np.linalg.norm(points[i]) * np.linalg.norm(points[j])
                cosine = points[i] @ points[j] / size
                (same if classes[i] == classes[j] else other).append(cosine)
    assert cohesion(points, classes) == pytest.approx((np.mean(same), np.mean(other)))
