"""Precision, device and compilation of a training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import partlabel
from partlabel.base.errors import InputError
from partlabel.cli import main
from partlabel.images.pictures import choose_workers
from partlabel.models import Backbone
from partlabel.training.arguments import make_settings
from partlabel.training.checkpoint import load_state, same
from partlabel.training.devices import find_device, make_fabric
from partlabel.training.run import Run

TINY: dict[str, Any] = {
    "method": "bce",
    "backbone": "test_efficientnet",
    "weights": "none",
    "size": 64,
    "epochs": 2,
    "batch": 8,
}


def weights_of(run: Run) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = load_state(run.folder / "best.safetensors")
    return weights


@pytest.fixture(scope="module")
def reference(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("devices") / "run"
    return partlabel.train(scene / "partial.csv", scene / "images", out, **TINY)


@pytest.mark.parametrize("precision", ["bf16", "16"])
def test_precision_changes_what_layers_compute_in(
    precision: str, scene: Path, tmp_path: Path, reference: Run
) -> None:
    run = partlabel.train(
        scene / "partial.csv", scene / "images", tmp_path / "run", precision=precision, **TINY
    )
    one, other = weights_of(reference), weights_of(run)
    assert all(value.dtype == other[name].dtype for name, value in one.items())
    name = "head.classifier.weight"
    assert not torch.equal(one[name], other[name])  # it is used
    assert all(bool(torch.isfinite(value.float()).all()) for value in other.values())
    costs = [line["loss"] for line in run.history()]
    expected = [line["loss"] for line in reference.history()]
    np.testing.assert_allclose(costs, expected, rtol=0.1)
    model = run.classifier()
    seen: list[torch.dtype] = []
    stem: Any = model.backbone.upper
    stem.conv_stem.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    model.predict(sorted((scene / "images").iterdir())[:2])
    assert seen == [{"bf16": torch.bfloat16, "16": torch.float16}[precision]]


@pytest.mark.exact
def test_a_training_in_16_bits_resumes_exactly(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scale of the loss is in the checkpoint too."""
    from partlabel.training import trainer

    arguments = TINY | {"precision": "16"}
    whole = partlabel.train(scene / "partial.csv", scene / "images", tmp_path / "a", **arguments)
    end_epoch = trainer.Trainer._end_epoch

    def stop(self: Any, record: Any) -> None:
        end_epoch(self, record)
        self._save(force=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_end_epoch", stop)
        with pytest.raises(KeyboardInterrupt):
            partlabel.train(scene / "partial.csv", scene / "images", tmp_path / "b", **arguments)
    assert "scale" in load_state(tmp_path / "b" / "last.safetensors")["precision"]
    resumed = partlabel.train(
        scene / "partial.csv", scene / "images", tmp_path / "b", resume=True, **arguments
    )
    assert same(weights_of(whole), weights_of(resumed))


def test_lbfgs_solves_in_full_precision(scene: Path, tmp_path: Path) -> None:
    arguments = TINY | {"frozen": "all", "optimizer": "lbfgs", "weight_decay": 1e-3}
    del arguments["batch"]
    costs = []
    for precision in ("32", "16"):
        run = partlabel.train(
            scene / "partial.csv",
            scene / "images",
            tmp_path / precision,
            precision=precision,
            cache=tmp_path / "cache",
            **arguments,
        )
        costs.append(run.history()[-1]["loss"])
    assert costs[0] == pytest.approx(costs[1], rel=0.02)
    stores = [path.name for path in (tmp_path / "cache").iterdir()]
    assert len(stores) == 2  # features of another precision are other features


def test_precision_in_a_file_may_be_a_number(tmp_path: Path) -> None:
    assert make_settings(method="bce", precision=16).precision == "16"
    with pytest.raises(InputError, match="precision"):
        make_settings(method="bce", precision=8)


def test_devices() -> None:
    assert find_device("cpu") == torch.device("cpu")
    assert find_device("auto").type in ("cpu", "cuda", "mps")
    assert make_fabric("cpu", world=1).world_size == 1
    for name in ("gpu", "cuda:x", "cpu:1", "mps:2", ""):
        with pytest.raises(InputError, match="must be auto, cpu, cuda"):
            find_device(name)
    with pytest.raises(InputError, match="torch finds no such device here; it finds cpu"):
        find_device("cuda:99")


def test_a_missing_device_is_an_error_of_the_call(scene: Path, tmp_path: Path) -> None:
    labels, images = str(scene / "partial.csv"), str(scene / "images")
    call = ["train", labels, "--images", images, "--method", "bce", "--out", str(tmp_path / "run")]
    assert main([*call, "--device", "cuda:99"]) == 2
    assert not (tmp_path / "run").exists()


def test_processes_decode_beside_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU they would take the cores of the network, unless they make strong views."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(4)))
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    assert choose_workers(1000, ("clean",)) == 0
    assert choose_workers(1000, ("clean", "strong")) == 3
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    assert [choose_workers(images, ("clean",)) for images in (10, 1000)] == [0, 3]
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(64)))
    assert choose_workers(1000, ("clean",)) == 8
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0})
    assert choose_workers(1000, ("clean",)) == 0


def test_a_network_that_cannot_be_compiled_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    from partlabel.models.compilation import compile_backbone

    backbone = Backbone("test_resnet", "none", "all", 32)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("there is no compiler")

    monkeypatch.setattr(type(backbone.lower), "compile", lambda self: None)
    monkeypatch.setattr(backbone.lower, "forward", fail)
    with pytest.raises(InputError, match=r"--compile.*there is no compiler"):
        compile_backbone(backbone)
