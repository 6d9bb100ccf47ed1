"""Methods compared: specs, cells, tables and curves."""

import os
import time
from pathlib import Path

import pytest

from partlabel.cli import main
from partlabel.run import Run


def test_bench(scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"""
labels: {os.path.relpath(scene / "labels.csv", tmp_path)}
images: {scene / "images"}
strategies:
  - strategy: single-positive
  - {{strategy: partial, proportions: [0.5]}}
seeds: [0, 1]
settings: {{backbone: test_efficientnet, weights: none, size: 64, frozen: all, epochs: 1}}
choose: {{lr: [0.001, 0.01]}}
methods:
  - {{name: AN, method: an}}
  - {{name: all labels, method: bce, labels: full}}
"""
    )
    call = ["bench", str(spec), "-o", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert main(call) == 0
    text = capsys.readouterr().out
    assert "| mAP | single-positive | partial 50% | full |" in text
    lines = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 2 + 2
    assert main(call) == 2
    start = time.monotonic()
    assert main([*call, "--resume"]) == 0  # everything is done
    assert time.monotonic() - start < 2
    assert (tmp_path / "out" / "results.csv").read_text().splitlines() == lines
    # the test split is not in what a method was given
    run = next((tmp_path / "out" / "cells").glob("AN-single-*-seed1-*"))
    assert set(Run(run / "run").labels.splits or []) == {"train", "holdout"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("methods: []\nlabel: x", "label"),
        ("methods: [{name: a, method: bec}]", "did you mean 'bce'"),
        ("methods: [{name: a, method: bce}, {name: a, method: an}]", "the same name"),
        ("methods: [{name: a, method: bce, settings: {lrr: 1}}]", "did you mean 'lr'"),
        ("methods: 3", "methods"),
        ("methods: [", "not a spec"),
    ],
)
def test_bad_specs(
    change: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text(f"labels: a\nimages: b\nstrategies: []\n{change}\n")
    assert main(["bench", str(tmp_path / "s.yaml"), "-o", str(tmp_path / "o")]) == 2
    assert message in capsys.readouterr().err
