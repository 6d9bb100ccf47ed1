"""What every method must be able to do; a test module of a method inherits all of it."""

import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning.methods import METHODS, Method, Task
from partlabel.learning.pseudo_labels import LabelMemory
from partlabel.models import Classifier
from partlabel.training.arguments import make_settings
from partlabel.training.checkpoint import load_state, same
from partlabel.training.progress import LOGGED
from partlabel.training.run import Run, load
from partlabel.training.train import train
from trained import tiny_model

SIZE, CLASSES = 64, 5  # as in the scene of conftest.py


class MethodConformance:
    """Inherit, and set ``name`` (and ``options`` if the defaults do not suit a tiny training)."""

    name: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    tiny: ClassVar[dict[str, Any]] = {
        "backbone": "test_efficientnet",
        "weights": "none",
        "size": SIZE,
        "epochs": 2,
        "batch": 8,
    }

    def make(self) -> Method:
        torch.manual_seed(0)
        return METHODS[self.name](**self.options)

    @staticmethod
    def validation(classes: int) -> LabelTable:
        """Two images, everything known."""
        names = [f"c{j}" for j in range(classes)]
        return LabelTable(["v", "w"], names, [[1] * classes, [-1] * classes])

    def set_up(self, labels: Any) -> tuple[Method, Classifier, Batch]:
        """A method, a model and a batch with these labels."""
        labels = torch.tensor(labels, dtype=torch.float32)
        method = self.make()
        model = tiny_model(method, labels.shape[1])
        rows = np.arange(len(labels))
        table = LabelTable(
            [f"{i}" for i in rows], [f"c{j}" for j in range(labels.shape[1])], labels.numpy()
        )
        with warnings.catch_warnings():  # such labels do not suit every method
            warnings.simplefilter("ignore", PartlabelWarning)
            method.prepare(Task(table, self.validation(labels.shape[1]), epochs=2))
        torch.manual_seed(1)
        shape = (len(labels), 3, SIZE, SIZE)
        views = {view: torch.randint(0, 255, shape, dtype=torch.uint8) for view in method.views}
        return method, model.train(), Batch(torch.from_numpy(rows), labels, views, teacher=model)

    def cost(self, labels: Any, dtype: torch.dtype = torch.float32) -> tuple[float, float]:
        """Loss and gradient norm of one batch."""
        method, model, batch = self.set_up(labels)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            parts = method.loss(model, batch)
        parts["loss"].backward()  # type: ignore[no-untyped-call]
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        assert all(bool(torch.isfinite(grad).all()) for grad in grads)
        assert all(np.isfinite(float(part.detach())) for part in parts.values())
        norm = float(torch.stack([grad.norm() for grad in grads]).sum()) if grads else 0.0
        return float(parts["loss"].detach()), norm

    def test_a_cost_that_may_be_asked_again(self) -> None:
        """It changes nothing, and its gradient is the slope of what it returns."""
        if not METHODS[self.name].in_one_batch:
            return
        method, model, batch = self.set_up([[1, 0, -1, 0, 1], [0, 1, 0, -1, 0], [1, -1, -1, 1, 1]])
        before = deepcopy(method.state_dict())

        def ask() -> torch.Tensor:
            torch.manual_seed(2)
            return method.loss(model, batch)["loss"]

        cost = ask()
        gradients = torch.autograd.grad(cost, list(model.head.parameters()), allow_unused=True)
        moved = [
            (parameter, gradient)
            for parameter, gradient in zip(model.head.parameters(), gradients, strict=True)
            if gradient is not None
        ]
        length = sum(float(gradient.square().sum()) for _, gradient in moved)
        step, costs = 2e-3 / length**0.5, []
        for direction in (-1, 2):  # to one side, and from there to the other
            with torch.no_grad():
                for parameter, gradient in moved:
                    parameter.add_(gradient, alpha=direction * step)
            costs.append(float(ask().detach()))
        slope = (costs[1] - costs[0]) / (2 * step)
        assert slope == pytest.approx(length, rel=0.05)
        assert same(before, method.state_dict())

    def test_mixed_labels_have_a_gradient(self) -> None:
        loss, norm = self.cost([[1, 0, -1, 0, 1], [0, 1, 0, -1, 0], [1, -1, -1, 1, 1]])
        assert norm > 0
        assert np.isfinite(loss)

    def test_odd_batches(self) -> None:
        self.cost([[0, 0, 0, 0, 0]] * 3)  # nothing known
        self.cost([[1, -1, 1, -1, 1]] * 3)  # all known
        self.cost([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]])  # positives only
        self.cost([[1], [0], [-1]])  # one class

    def test_a_batch_of_one(self) -> None:
        self.cost([[1, 0, -1, 0, 0]])

    def test_half_precision(self) -> None:
        self.cost([[1, 0, -1, 0, 1], [0, 1, 0, -1, 0]], torch.bfloat16)

    def test_settings_are_documented_and_read(self) -> None:
        settings = make_settings(method=self.name, options=self.options)
        assert settings.method == self.name
        assert (METHODS[self.name].__doc__ or "").strip()

    def train(self, scene: Path, out: Path, **more: Any) -> Run:
        call = {"method": self.name, "options": self.options, **self.tiny, **more}
        return train(scene / "partial.csv", scene / "images", out, **call)

    def test_trains_saves_and_loads(self, scene: Path, tmp_path: Path) -> None:
        whole = self.train(scene, tmp_path / "whole")
        assert whole.record.finished
        assert len(whole.history()) == 2
        scores = load(whole.folder).predict(sorted((scene / "images").iterdir())[:3])
        assert scores.shape == (3, CLASSES)
        assert np.isfinite(scores).all()

    def test_trains_on_all_images_at_once_or_says_that_it_cannot(
        self, scene: Path, tmp_path: Path
    ) -> None:
        usual = {k: v for k, v in self.tiny.items() if k not in ("batch", "clip", "ema")}
        call: dict[str, Any] = {
            **usual,
            "method": self.name,
            "options": self.options,
            "frozen": "all",
            "optimizer": "lbfgs",
            "weight_decay": 1e-4,
        }
        if not METHODS[self.name].in_one_batch:
            with pytest.raises(InputError, match="all images at once"):
                make_settings(**call)
            return
        run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **call)
        assert run.record.finished
        first, second = (record["loss"] for record in run.history())
        changes = not run.method().is_settled(0)  # then it is another cost
        assert second < first + 1e-3 or changes  # without the decay, which is part of the cost

    def test_every_figure_of_the_log_is_declared(self, scene: Path, tmp_path: Path) -> None:
        run = self.train(scene, tmp_path / "run")
        logged = {name for line in run.history() for name in line} - {*LOGGED}
        assert "loss" in logged
        assert logged <= set(run.method().figures())

    def test_a_stopped_run_ends_in_the_same_bits(
        self, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Stopped within an epoch, between epochs and after the first step of the next."""
        from partlabel.training import trainer

        whole = self.train(scene, tmp_path / "whole")
        stops = {(0, 2), (1, 0), (1, 1)}
        original = trainer.Trainer._save

        def save_and_stop(self: trainer.Trainer, *, force: bool = False) -> None:
            place = (self.progress.epoch, self.progress.step)
            original(self, force=force or place in stops)
            if place in stops:
                stops.remove(place)
                raise KeyError("stop")

        monkeypatch.setattr(trainer.Trainer, "_save", save_and_stop)
        while stops:
            with pytest.raises(KeyError, match="stop"):
                self.train(scene, tmp_path / "cut", resume=True)
        cut = self.train(scene, tmp_path / "cut", resume=True)
        states = [load_state(run.checkpoint) for run in (whole, cut)]
        for state in states:
            for record in state["progress"]["history"]:
                record.pop("images_per_second")
        assert same(*states)
        assert same(*(load_state(run.folder / "best.safetensors") for run in (whole, cut)))
        if (whole.folder / "memory").exists():
            same_memory(*(LabelMemory.open(run.folder / "memory") for run in (whole, cut)))


def same_memory(whole: LabelMemory, cut: LabelMemory) -> None:
    """Whether two memories hold the same pseudo-labels, to the bit, and some."""
    np.testing.assert_array_equal(whole.rounds, cut.rounds)
    given = whole.rounds > np.iinfo(np.int16).min
    given &= whole.rounds != 0
    assert given.any()
    np.testing.assert_array_equal(whole.values[given], cut.values[given])
