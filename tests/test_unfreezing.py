"""Training the backbone after auto has chosen on frozen features."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import partlabel
from partlabel.base.errors import FileError, InputError, JobError
from partlabel.cli import main
from partlabel.labels.formats import read_labels
from partlabel.models import make_backbone
from partlabel.training import unfreezing
from partlabel.training.backbone_work import operations
from partlabel.training.run import Run

TINY: dict[str, Any] = {
    "backbone": "test_efficientnet",
    "weights": "none",
    "size": 64,
    "budget": 2,
    "folds": 2,
}
PARTS: tuple[Any, ...] = ("lower", "nothing")


@pytest.mark.parametrize("better", [True, False])
def test_the_better_of_the_two_is_kept(
    scene: Path, tmp_path: Path, better: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = unfreezing._score
    monkeypatch.setattr(
        unfreezing,
        "_score",
        lambda run: scores(run) + (run.folder.name == "unfrozen") * (2 if better else -2),
    )
    sources = scene / "partial.csv", scene / "images", tmp_path / "run"
    run = partlabel.train(*sources, frozen="lower", **TINY)
    assert run.finished
    outcome = json.loads((run.folder / "unfreeze.json").read_text())
    assert outcome["kept"] == ("unfrozen" if better else "frozen")
    assert set(outcome["val_mAP"]) == {"frozen", "unfrozen"}
    assert (run.settings.method == "auto") is not better
    assert run.settings.frozen == ("lower" if better else "all")
    assert not (run.folder / "parts").exists()
    assert partlabel.evaluate(run, scene / "labels.csv", split="test")["mAP"] > 0
    before = (run.folder / "run.json").read_bytes()
    assert partlabel.train(*sources, frozen="lower", resume=True, **TINY).finished
    assert (run.folder / "run.json").read_bytes() == before
    assert unfreezing.describe(run.folder).startswith(f"kept: {outcome['kept']} (validation mAP")
    with pytest.raises(FileError, match="not empty"):
        partlabel.train(*sources, frozen="lower", **TINY)
    with pytest.raises(InputError, match="other settings"):
        partlabel.train(*sources, frozen="nothing", resume=True, **TINY)


def test_the_budget_says_how_long_the_backbone_is_trained(
    scene: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(unfreezing, "_score", lambda run: float(run.folder.name == "unfrozen"))
    sources = scene / "partial.csv", scene / "images"
    run = partlabel.train(*sources, tmp_path / "run", frozen="lower", **{**TINY, "budget": 40})
    assert len(run.history()) == 2
    said = capsys.readouterr().err
    plan = "the last stage of the backbone is trained for 2 epochs, about 1 min on one processor"
    assert said.index(plan) < said.index("training on")
    partlabel.train(*sources, tmp_path / "quiet", frozen="lower", quiet=True, **TINY)
    assert "1 epoch" not in capsys.readouterr().err


def test_the_backbone_starts_from_what_the_head_was_trained_on(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With steps of next to no length, the scores stay those of the head on frozen features."""
    plan = {name: {**one, "lr": 1e-12} for name, one in unfreezing._PLAN.items()}
    monkeypatch.setattr(unfreezing, "_PLAN", plan)
    scores: list[Any] = []

    def noted(run: Run) -> float:
        if run.folder.name == "unfrozen":
            probe = Run(run.folder.parent / "probe", scene / "images")
            runs = probe, Run(run.folder, scene / "images")
            paths = sorted((scene / "images").iterdir())[:8]
            scores.extend(partlabel.load(one).predict(paths) for one in runs)
        return 0.0

    monkeypatch.setattr(unfreezing, "_score", noted)
    sources = scene / "partial.csv", scene / "images", tmp_path / "run"
    partlabel.train(*sources, frozen="lower", **TINY)
    assert np.allclose(scores[0], scores[1], atol=1e-3)
    assert np.ptp(scores[0]) > 0.01


def test_the_work_of_a_training_grows_with_what_is_trained() -> None:
    """A linear layer has two operations per weight; a convolution as many at each position."""
    backbones = {part: make_backbone("test_efficientnet", "none", part, 64) for part in PARTS}
    last, everything = (operations(backbone) for backbone in backbones.values())
    assert 0 < last < everything
    seen: list[int] = []

    def note(layer: Any, inputs: Any, output: Any) -> None:
        shape = output.shape
        per_position = layer.weight[0].numel() * shape[1]
        seen.append(2 * per_position * shape[2] * shape[3])

    network = backbones["nothing"]
    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(note)
    with torch.no_grad():
        network.eval()(torch.zeros((1, 3, 64, 64), dtype=torch.uint8))
    assert everything == sum(seen)


def test_a_backbone_that_cannot_be_trained_is_an_error_before_the_search(
    scene: Path, tmp_path: Path
) -> None:
    settings = {**TINY, "backbone": "test_efficientnet+test_vit", "size": 160}
    with pytest.raises(InputError, match="joined networks cannot be split"):
        partlabel.train(
            scene / "partial.csv", scene / "images", tmp_path / "run", frozen="lower", **settings
        )
    assert not (tmp_path / "run" / "parts").exists()


def test_both_are_compared_on_the_same_images_without_a_holdout(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, ``auto`` would hold out each image in turn, and validate on all of them."""
    compared: dict[str, list[str]] = {}
    score = unfreezing._score

    def noted(run: Run) -> float:
        compared[run.folder.name] = list(run.selection.validation.ids)
        return score(run)

    monkeypatch.setattr(unfreezing, "_score", noted)
    table = read_labels(scene / "partial.csv").with_splits(None)
    run = partlabel.train(table, scene / "images", tmp_path / "run", frozen="lower", **TINY)
    assert run.finished
    assert len(compared["frozen"]) == round(0.2 * len(table))
    assert compared["frozen"] == compared["unfrozen"]


def test_a_stopped_training_goes_on_with_the_same_split(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = read_labels(scene / "partial.csv")
    lines = [f"{name},{n % 8}" for n, name in enumerate(table.ids)]
    (tmp_path / "groups.csv").write_text("\n".join(["image,group", *lines]) + "\n")
    settings = {**TINY, "frozen": "nothing", "val": 0.3, "group": str(tmp_path / "groups.csv")}
    sources = scene / "partial.csv", scene / "images", tmp_path / "run"
    best = unfreezing._best_single

    def stop(run: Run) -> dict[str, Any]:
        raise JobError("stopped")

    monkeypatch.setattr(unfreezing, "_best_single", stop)
    with pytest.raises(JobError, match="stopped"):
        partlabel.train(*sources, **settings)
    done = (tmp_path / "run" / "parts" / "frozen" / "run.json").stat().st_mtime_ns
    seen: list[Run] = []

    def look(run: Run) -> dict[str, Any]:
        assert (run.folder / "run.json").stat().st_mtime_ns == done  # not trained again
        seen.append(run)
        found = best(run)
        seen_split.append(run.selection)
        return found

    seen_split: list[Any] = []
    monkeypatch.setattr(unfreezing, "_best_single", look)
    run = partlabel.train(*sources, resume=True, **settings)
    assert seen
    assert run.finished
    assert run.selection.same_images(seen_split[0])
    assert np.array_equal(run.selection.groups.first, seen_split[0].groups.first)


def test_a_run_that_was_stopped_while_it_moved_is_whole_after_resume(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = scene / "partial.csv", scene / "images", tmp_path / "run"
    write = Run.write

    def stop(self: Run, record: Any) -> None:
        if self.folder == tmp_path / "run":
            raise JobError("stopped")
        write(self, record)

    monkeypatch.setattr(Run, "write", stop)
    with pytest.raises(JobError, match="stopped"):
        partlabel.train(*sources, frozen="lower", **TINY)
    assert not (tmp_path / "run" / "run.json").exists()
    monkeypatch.setattr(Run, "write", write)
    run = partlabel.train(*sources, frozen="lower", resume=True, **TINY)
    assert run.finished
    assert len(run.selection.train)
    assert run.classifier().classes == run.record.classes
    with pytest.raises(InputError, match="--val 0"):
        partlabel.train(*sources[:2], tmp_path / "none", frozen="lower", **TINY, val=0)


def test_what_auto_chooses_is_refused_with_unfreeze_too(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["train", str(scene / "partial.csv"), "--images", str(scene / "images")]
    call += ["--out", str(tmp_path / "run"), "--unfreeze", "last"]
    for option in (["--set", "alpha=1"], ["--lr", "0.1"], ["--head", "saliency"]):
        assert main([*call, *option]) == 2
        assert f"{option[0]} has no effect with --method auto" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
