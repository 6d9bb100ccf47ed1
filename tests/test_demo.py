"""The demo, on fewer images and with a small network."""

from pathlib import Path

import pytest

from partlabel import read_labels
from partlabel.cli import main
from partlabel.labels import merge
from partlabel.labels.scenes import World
from partlabel.output import tour as demo


def test_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "COUNT", 80)
    monkeypatch.setattr(demo, "WORLD", World(classes=4, size=64, seed=0))
    small = {"backbone": "test_efficientnet", "weights": "none", "size": 64, "epochs": 2}
    monkeypatch.setattr(demo, "SETTINGS", demo.SETTINGS | small)
    plan = {name: small[name] for name in ("backbone", "weights", "size")}
    monkeypatch.setattr(demo, "PLAN", demo.PLAN | plan | {"budget": "3"})
    monkeypatch.setattr(demo, "APL", demo.APL | {"warmup": 1})
    folder = tmp_path / "demo"
    assert main(["demo", "--out", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "points of mAP" in text
    assert f"Open {folder}/run-em-apl/report.html in a browser" in text.replace("\n", "")
    for command in ("inspect", "merge", "train", "complete", "simulate", "evaluate", "report"):
        assert f"     partlabel {command} " in text
    assert "epoch 1/" in (folder / "training.log").read_text()
    for name in ("completed.png", "run-em-apl/report.html", "completed.csv"):
        assert (folder / name).stat().st_size > 1000
    files = [("team-a.csv", None), ("team-b.json", "absent"), ("web.csv", "unknown")]
    tables = [read_labels(folder / name, unlisted=unlisted) for name, unlisted in files]
    merged = read_labels(folder / "merged.csv")
    assert merged.origins == ["team-a", "team-b", "web"]
    assert merged.without_origins() == merge(tables)
    assert main(["demo", "--out", str(folder)]) == 2
