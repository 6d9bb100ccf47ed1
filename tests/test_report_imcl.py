"""The sections of a report on the label graph, and on classes with few and many labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import MethodConformance
from partlabel.labels import scenes, simulate
from partlabel.labels.formats.links import read_links
from partlabel.output import report
from partlabel.training.train import train


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


def test_shows_groups_of_classes(tmp_path: Path) -> None:
    table = scenes.write(tmp_path / "scenes", 80, scenes.World(12, 32, 0), test=0.0)
    labels = simulate.hide(table, "partial", 0.5, holdout=0.4)
    call = {**MethodConformance.tiny, "size": 32, "epochs": 1, "drop_empty": True}
    run = train(labels, tmp_path / "scenes" / "images", tmp_path / "run", method="bce", **call)
    page = report.build_report(run).read_text()
    assert "Classes with few and with many labels" in page
    assert "G5" in page
