"""The sections of a report on the label graph, and on classes with few and many labels."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import MethodConformance
from partlabel.labels import scenes, simulate
from partlabel.labels.formats.links import read_links
from partlabel.output import report
from partlabel.output.report.sample import take_sample
from partlabel.output.report.similar_images import similar_images, strongest
from partlabel.training.train import train
from reports import section


@pytest.mark.parametrize(("graph", "linked"), [("cooccurrence", True), ("identity", False)])
def test_shows_the_label_graph(scene: Path, tmp_path: Path, graph: str, linked: bool) -> None:
    options = {"graph": graph, "graph_lr": 0.5}
    call: dict[str, Any] = {**MethodConformance.tiny, "method": "imcl", "options": options}
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **call)
    page = report.build_report(run).read_text()
    assert ("Labels that occur together" in page) is linked
    assert "Classes with few and with many labels" not in page  # there are only five
    if linked:
        links = read_links(run.folder / "graph.csv", run.record.classes)
        state = run.last_state()["method"]
        assert not np.allclose(state["graph.first"], state["graph.weights"])
        j, n = 0, 1
        other = run.record.classes[int(state["graph.linked"][j, n])]
        weight = max(float(state["graph.weights"][j, n]), 0) / float(state["graph.weights"][j, 0])
        weights = {(name, to): value for name, to, value in links}
        assert weights[run.record.classes[j], other] == pytest.approx(weight, abs=1e-5)


def test_shows_similar_images(scene: Path, tmp_path: Path) -> None:
    """Those that the method finds for the same images and the same model."""
    call: dict[str, Any] = {**MethodConformance.tiny, "epochs": 4, "method": "imcl"}
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **call)
    part = section(report.build_report(run).read_text(), "Similar images")
    assert part.count("● this image") == 4
    weights = [float(weight) for weight in re.findall(r">(\d\.\d\d) at the end<", part)]
    assert 4 <= len(weights) <= 12
    assert min(weights) >= 0
    assert " before<" in part
    sample = take_sample(run)
    names = list(sample.training.ids.take(sample.drawn))
    shown = re.findall(r'title="([^"]+)"', part)
    assert set(shown) <= set(names)
    assert similar_images(sample, None) == []


def test_an_image_is_not_similar_to_itself_and_no_weight_is_no_link() -> None:
    images = np.array([[1, -1], [0, 2], [-1, -1]])
    weights = np.array([[0.5, 0.0], [0.0, 0.25], [0.0, 0.0]], dtype=np.float32)
    assert strongest(images, weights, 3) == [[(1, 0.5)], [(2, 0.25)], []]


def test_shows_groups_of_classes(tmp_path: Path) -> None:
    table = scenes.write(tmp_path / "scenes", 80, scenes.World(12, 32, 0), test=0.0)
    labels = simulate.hide(table, "partial", 0.5, holdout=0.4)
    call = {**MethodConformance.tiny, "size": 32, "epochs": 1, "drop_empty": True}
    run = train(labels, tmp_path / "scenes" / "images", tmp_path / "run", method="bce", **call)
    page = report.build_report(run).read_text()
    assert "Classes with few and with many labels" in page
    assert "G5" in page
