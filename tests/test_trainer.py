"""The trainer with a method that has stages, state, random choices and relabelling; kept epochs."""

import os
import signal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel import read_labels, train
from partlabel.base.errors import InputError, JobError
from partlabel.base.interruption import interruptible
from partlabel.images.batches import Batch
from partlabel.images.pictures import Pictures
from partlabel.judging.completion import complete_run as complete
from partlabel.judging.scoring import evaluate_run
from partlabel.labels import HUMAN, MODEL, Cells
from partlabel.learning import losses
from partlabel.learning.extensions import FollowsStages
from partlabel.learning.methods import METHODS, Figure, Method, Predict, Stage
from partlabel.learning.methods.bce import Bce
from partlabel.models import Classifier
from partlabel.models.prediction import collect_scores
from partlabel.training import trainer
from partlabel.training.arguments import make_settings
from partlabel.training.checkpoint import load_state, same
from partlabel.training.examples import Examples
from partlabel.training.run import Run, load
from partlabel.training.trainer import Trainer
from trained import tiny_model

TINY: dict[str, Any] = {"backbone": "test_efficientnet", "weights": "none", "size": 64, "batch": 8}


class Busy(FollowsStages):
    """A method with stages, its own parameters, buffers, random choices and relabelling."""

    weight: torch.Tensor
    images_seen: torch.Tensor
    prior: torch.Tensor
    in_one_batch = False  # the loss changes a buffer

    def __init__(self, relabel_at: tuple[int, ...] = (1,), scale: float = 1.0) -> None:
        super().__init__()
        self.relabel_at, self.scale, self.stage = relabel_at, scale, -1
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("images_seen", torch.zeros(()))
        self.register_buffer("prior", torch.zeros(1))

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        first = Stage(1, lr=0.01, schedule="cosine", optimizer="sgd", head_only=True)
        return [first, Stage(epochs - 1, patience=patience)]

    def begin_stage(self, stage: int, model: Any) -> None:
        self.stage = stage

    def figures(self) -> dict[str, Figure]:
        return super().figures() | {"cost": Figure.COST, "prior": Figure.SETTING}

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        if epoch not in self.relabel_at:
            return {}
        total = torch.zeros(1)
        for _, logits in predict(
            lambda model, inputs: model.head(torch.dropout(model.backbone(inputs), 0.5, True))
        ):
            total = total + logits.sigmoid().sum()
        self.prior = total + torch.rand(1)
        return {"prior": float(self.prior)}

    def loss(self, model: Any, batch: Any) -> dict[str, torch.Tensor]:
        assert self.stage >= 0 or not self.training
        self.images_seen += len(batch)
        logits = torch.dropout(model(batch.views["weak"]), 0.1, True)
        cost = losses.bce(logits, batch.labels) * self.scale
        pull = (self.weight - cost.detach()) ** 2 + 1e-6 * (self.prior * self.weight).sum()
        return {"loss": cost + pull, "cost": cost}


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "busy", Busy)


class TestBusy(MethodConformance):
    name = "busy"
    tiny: ClassVar[dict[str, Any]] = {
        **MethodConformance.tiny,
        "clip": 0.1,
        "weight_decay": 1e-3,
        "ema": 0.9,
    }

    def make(self) -> Method:
        method = super().make()
        assert isinstance(method, Busy)
        method.begin_stage(0, None)
        return method


def test_a_stage_that_trains_the_head_does_not_change_the_backbone(
    scene: Path, tmp_path: Path
) -> None:
    class HeadOnly(Busy):
        def stages(self, epochs: int, patience: int | None) -> list[Stage]:
            return [Stage(epochs, head_only=True)]

    METHODS["busy"] = HeadOnly
    states = []
    for epochs in (1, 3):
        out = tmp_path / str(epochs)
        train(scene / "labels.csv", scene / "images", out, method="busy", epochs=epochs, **TINY)
        states.append(load_state(out / "last.safetensors")["model"])
    backbones = [{k: v for k, v in s.items() if k.startswith("backbone.")} for s in states]
    assert same(*backbones)
    assert not same(*states)


@pytest.mark.parametrize(("keep", "epoch"), [("best", 4), ("best-of-all", 1), ("last", 6)])
def test_the_best_epoch_of_the_last_stage_is_kept(
    monkeypatch: pytest.MonkeyPatch, scene: Path, tmp_path: Path, keep: str, epoch: int
) -> None:
    """The first stage has one epoch, which is the best of all."""
    values = iter([0.9, 0.5, 0.6, 0.85, 0.8, 0.7])
    weights = []

    def validate(self: Trainer, model: Classifier) -> float:
        weights.append(model.trained_weights())
        return next(values)

    monkeypatch.setattr(Trainer, "_validate", validate)
    arguments = {"method": "busy", "epochs": 6, "keep": keep, **TINY}
    run = train(scene / "labels.csv", scene / "images", tmp_path / "r", **arguments)
    assert run.record.best_epoch == epoch
    kept = load_state(run.folder / "best.safetensors")
    assert [same(kept, one) for one in weights] == [n == epoch for n in range(1, 7)]


@pytest.mark.parametrize("factor", [0.5, 0.8])
def test_the_rate_falls_after_an_epoch_that_is_no_better(
    monkeypatch: pytest.MonkeyPatch, scene: Path, tmp_path: Path, factor: float
) -> None:
    values = iter([0.5, 0.6, 0.6, 0.4, 0.7, 0.8])
    monkeypatch.setattr(Trainer, "_validate", lambda self, model: next(values))
    run = train(
        scene / "labels.csv",
        scene / "images",
        tmp_path / "r",
        method="bce",
        epochs=6,
        lr=1e-3,
        schedule="plateau",
        plateau=factor,
        **TINY,
    )
    falls = [0, 0, 0, 1, 2, 2]  # before each epoch
    rates = [line["lr"] for line in run.history()]
    assert rates == pytest.approx([1e-3 * factor**number for number in falls])


def test_patience_counts_within_a_stage(
    monkeypatch: pytest.MonkeyPatch, scene: Path, tmp_path: Path
) -> None:
    values = iter([0.9, 0.5, 0.6, 0.7, 0.8, 0.85])
    monkeypatch.setattr(Trainer, "_validate", lambda self, model: next(values))
    run = train(
        scene / "labels.csv",
        scene / "images",
        tmp_path / "r",
        method="busy",
        epochs=6,
        patience=2,
        **TINY,
    )
    assert [round(line["val_mAP"], 2) for line in run.history()] == [0.9, 0.5, 0.6, 0.7, 0.8, 0.85]
    assert run.record.best_epoch == 6  # the best of the last stage, not of all


def test_settings_that_are_lists(scene: Path, tmp_path: Path) -> None:
    settings = make_settings(method="busy", options={"relabel_at": "1,2", "scale": "0.5"})
    assert settings.options == {"relabel_at": (1, 2), "scale": 0.5}
    arguments: dict[str, Any] = {
        "method": "busy",
        "options": {"relabel_at": "1,2"},
        "epochs": 2,
        **TINY,
    }
    for _ in range(2):
        run = train(
            scene / "labels.csv", scene / "images", tmp_path / "r", resume=True, **arguments
        )
    assert run.record.finished
    arguments["options"] = {"relabel_at": "1"}
    with pytest.raises(InputError, match="was started with options"):
        train(scene / "labels.csv", scene / "images", tmp_path / "r", resume=True, **arguments)


def test_resuming_with_other_labels_is_an_error(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "labels.csv")
    train(table, scene / "images", tmp_path / "r", method="bce", epochs=1, **TINY)
    flipped = table.with_cells(table.cells.with_values(-table.cells.values))
    with pytest.raises(InputError, match="other labels"):
        train(
            flipped, scene / "images", tmp_path / "r", method="bce", epochs=1, resume=True, **TINY
        )


def test_labels_of_a_model_keep_their_source_and_are_not_evaluated_on(
    scene: Path, tmp_path: Path
) -> None:
    table = read_labels(scene / "labels.csv")
    cells = table.cells
    sources = np.zeros(len(cells.values), dtype=np.int8)
    sources[::3] = MODEL
    mixed = table.with_cells(cells.with_details(sources=sources))
    run = train(mixed, scene / "images", tmp_path / "r", method="bce", epochs=1, **TINY)
    completed = complete(run, 0.9).table
    assert np.array_equal(completed.cells.sources_or_human(), sources)
    assert np.array_equal(completed.dense(), table.dense())
    model_cells = cells.where(sources == MODEL)
    model_cells = model_cells.with_details(sources=np.full(len(model_cells.values), MODEL, np.int8))
    with pytest.raises(InputError, match="labels given by humans"):
        evaluate_run(run, table.with_cells(model_cells), scene / "images")
    human_labels = table.with_cells(cells.where(sources == HUMAN))
    figures = evaluate_run(run, mixed, scene / "images")
    assert figures.per_class.present.sum() == human_labels.counts().present.sum()
    assert dict(figures) == pytest.approx(
        dict(evaluate_run(run, human_labels, scene / "images")), nan_ok=True
    )


def test_classes_left_out_keep_their_labels(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "labels.csv").with_more_classes(["unicorn"])
    absent = Cells(
        np.arange(len(table) + 1),
        np.full(len(table), 5, np.int32),
        np.full(len(table), -1, np.int8),
    )
    table = table.merge(table.with_cells(absent))
    run = train(
        table, scene / "images", tmp_path / "r", method="bce", epochs=1, drop_empty=True, **TINY
    )
    assert run.record.classes == list(table.classes)[:5]
    completed = complete(run, 0.9).table
    assert np.array_equal(completed.dense(), table.dense())


def test_confident_scores_do_not_tie() -> None:
    logits = torch.tensor([[40.0], [30.0], [20.0], [18.0]])
    scores, _ = collect_scores(iter([(np.arange(4), logits)]))
    assert len(np.unique(scores[1:])) == 3


def test_no_readable_image_is_an_error(scene: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for name in read_labels(scene / "labels.csv").ids:
        (images / name).write_bytes(b"not an image")
    for frozen in ("nothing", "all"):
        arguments: dict[str, Any] = {"method": "bce", "frozen": frozen, "epochs": 1, **TINY}
        with (
            pytest.warns(UserWarning, match="left out"),
            pytest.raises(JobError, match="no training"),
        ):
            train(
                scene / "labels.csv", images, tmp_path / frozen, cache=tmp_path / "c", **arguments
            )


def test_runs_without_weights_do_not_load(scene: Path, tmp_path: Path) -> None:
    from partlabel.training.checkpoint import save_state

    train(
        scene / "labels.csv",
        scene / "images",
        tmp_path / "r",
        method="bce",
        epochs=1,
        frozen="lower",
        cache=tmp_path / "c",
        **TINY,
    )
    for name in ("best.safetensors", "backbone.safetensors"):
        content = (tmp_path / "r" / name).read_bytes()
        save_state(tmp_path / "r" / name, {})
        with pytest.raises(InputError, match="weights do not fit"):
            load(tmp_path / "r")
        (tmp_path / "r" / name).write_bytes(content)
    assert load(tmp_path / "r").classes


def test_evaluate_without_common_classes(scene: Path, tmp_path: Path) -> None:
    run = train(
        scene / "labels.csv", scene / "images", tmp_path / "r", method="bce", epochs=1, **TINY
    )
    other = read_labels(scene / "labels.csv").with_more_classes(["x"]).with_classes(["x"])
    with pytest.raises(InputError, match="none of the run's classes"):
        evaluate_run(Run(run.folder), other, scene / "images")


def test_keep_last_keeps_the_last_epoch(scene: Path, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"method": "bce", "lr": 0.05, **TINY, "epochs": 6}
    for keep in ("best", "last"):
        train(scene / "labels.csv", scene / "images", tmp_path / keep, keep=keep, **arguments)
    best, last = Run(tmp_path / "best"), Run(tmp_path / "last")
    assert best.record.best_epoch < 6  # else this tests nothing
    assert last.record.best_epoch == 6
    kept_weights = load_state(last.folder / "best.safetensors")
    assert same(kept_weights, load_state(last.checkpoint)["model"])


def test_ctrl_c_in_an_inner_block_also_interrupts_the_outer_one() -> None:
    with interruptible() as outer:
        with interruptible() as inner:
            os.kill(os.getpid(), signal.SIGINT)
            assert inner()
        assert outer()
    with interruptible() as later:
        assert not later()


class InfiniteSlope(Bce):
    """The loss stays finite, and the gradient of one step does not."""

    steps, bad = 0, 3

    def cost(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        self.steps += 1
        slope = (0 * logits).abs().sqrt().sum() if self.steps == self.bad else 0
        return super().cost(logits, batch) + slope


@pytest.mark.parametrize(("bad", "message"), [
    (1, r"the gradient became infinite in epoch 1, step 1, on images .*\.png"),
    (3, "the weights became infinite in epoch 1, before step 4; the last good checkpoint is kept"),
])  # fmt: skip
def test_weights_that_are_not_finite_are_never_saved(
    bad: int, message: str, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients are not looked at in every step, but weights are before they are saved."""
    monkeypatch.setitem(METHODS, "odd", InfiniteSlope)
    monkeypatch.setattr(InfiniteSlope, "bad", bad)
    monkeypatch.setattr(trainer, "_SAVE_EVERY", 0.0)
    with pytest.raises(JobError, match=message):
        train(
            scene / "labels.csv", scene / "images", tmp_path / "r", method="odd", epochs=2, **TINY
        )
    checkpoint = tmp_path / "r" / "last.safetensors"
    assert checkpoint.exists() == (bad > 1)
    if checkpoint.exists():
        weights = load_state(checkpoint)["model"].values()
        assert all(bool(value.isfinite().all()) for value in weights)


def test_weights_that_are_not_finite_are_noticed_without_a_checkpoint(
    scene: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InfiniteSlope, "bad", 5)
    table = read_labels(scene / "labels.csv")
    paths = [scene / "images" / name for name in table.ids]
    pictures = Pictures(list(table.ids), paths, 64, seed=0)
    method, rows = InfiniteSlope(), np.arange(len(table))
    settings = make_settings(method="bce", epochs=1, **TINY)
    training = Trainer(
        tiny_model(method, len(table.classes)),
        method,
        Examples(table, pictures, rows),
        Examples(table, pictures, rows[:0]),
        settings,
        None,
        Silent(),
    )
    with pytest.raises(JobError, match=r"the weights became infinite .* nothing is kept"):
        training.fit()
    assert method.steps == 5


class Silent:
    """A watcher that does nothing."""

    def begin(self, *_: Any) -> None:
        """Do nothing."""

    step = end = saved = note = warn = begin


def test_figures_for_the_log_are_means_over_the_steps_that_have_them(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    known = losses.known_positives

    def noted(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.append(float(known(logits, labels)))
        return known(logits, labels)

    monkeypatch.setattr(losses, "known_positives", noted)
    small = {**TINY, "batch": 2}
    run = train(
        scene / "labels.csv", scene / "images", tmp_path / "r", method="bce", epochs=2, **small
    )
    steps = -(-run.record.train_rows // 2)
    logged = len(range(0, steps, trainer._LOG_EVERY))
    assert 1 < logged < steps
    assert len(seen) == 2 * logged
    means = [line["positives"] for line in run.history()]
    assert means == pytest.approx([np.mean(seen[:logged]), np.mean(seen[logged:])])
