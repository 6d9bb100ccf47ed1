"""Tests that every method must pass. The test class of a method inherits them."""

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
from partlabel.training.progress import LOGGED, Progress
from partlabel.training.run import Run, load
from partlabel.training.steps import Steps
from partlabel.training.train import train
from partlabel.training.whole_set import Sums
from trained import tiny_model

SIZE, CLASSES = 64, 5  # as in the scene of conftest.py


class MethodConformance:
    """Tests of one method.

    A subclass sets ``name``, and ``options`` if the default settings do not suit a tiny training.
    """

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
        """Two images, all labels known."""
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
        with warnings.catch_warnings():  # some methods warn of such labels
            warnings.simplefilter("ignore", PartlabelWarning)
            method.prepare(Task(table, self.validation(labels.shape[1]), epochs=2))
        torch.manual_seed(1)
        shape = (len(labels), 3, SIZE, SIZE)
        views = {view: torch.randint(0, 255, shape, dtype=torch.uint8) for view in method.views}
        return method, model.train(), Batch(torch.from_numpy(rows), labels, views, teacher=model)

    def cost(self, labels: Any, dtype: torch.dtype = torch.float32) -> tuple[float, float]:
        """The loss of one batch, and the norm of its gradient."""
        method, model, batch = self.set_up(labels)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            parts = method.loss(model, batch)
        parts["loss"].backward()  # type: ignore[no-untyped-call]
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        assert all(bool(torch.isfinite(grad).all()) for grad in grads)
        assert all(np.isfinite(float(part.detach())) for part in parts.values())
        norm = float(torch.stack([grad.norm() for grad in grads]).sum()) if grads else 0.0
        return float(parts["loss"].detach()), norm

    def test_the_loss_is_a_function_of_the_weights(self) -> None:
        """If lbfgs may be used: the loss changes no state, and has the right gradient."""
        if not METHODS[self.name].in_one_batch:
            pytest.skip("lbfgs cannot train this method")
        method, model, batch = self.set_up([[1, 0, -1, 0, 1], [0, 1, 0, -1, 0], [1, -1, -1, 1, 1]])
        state_before = deepcopy(method.state_dict())

        def compute_loss() -> torch.Tensor:
            torch.manual_seed(2)
            return method.loss(model, batch)["loss"]

        parameters = list(model.head.parameters())
        gradients = torch.autograd.grad(compute_loss(), parameters, allow_unused=True)
        pairs = [
            (parameter, gradient)
            for parameter, gradient in zip(parameters, gradients, strict=True)
            if gradient is not None
        ]
        squared_norm = sum(float(gradient.square().sum()) for _, gradient in pairs)
        step, costs = 2e-3 / squared_norm**0.5, []
        for factor in (-1, 2):  # one step against the gradient, then two along it
            with torch.no_grad():
                for parameter, gradient in pairs:
                    parameter.add_(gradient, alpha=factor * step)
            costs.append(float(compute_loss().detach()))
        slope = (costs[1] - costs[0]) / (2 * step)
        assert slope == pytest.approx(squared_norm, rel=0.05)
        assert same(state_before, method.state_dict())

    def test_the_loss_of_all_images_is_a_mean_over_parts(self) -> None:
        """If the method says so: then lbfgs sums up parts. The model looks at single images."""
        labels = [[1, 0, -1, 0, 1], [0, 1, 0, -1, 0], [1, -1, -1, 1, 1], [0, 0, 0, 0, 0]]
        method, model, batch = self.set_up(labels)
        if method.part_weights(batch) is None:
            pytest.skip("the loss is no mean over parts")
        head = list(model.head.parameters())
        results: list[tuple[dict[str, float], list[torch.Tensor | None]]] = []
        for parts in ([slice(0, 4)], [slice(0, 1), slice(1, 4)]):
            sums = Sums(head)
            for part in parts:
                model.eval().zero_grad()
                views = {name: view[part] for name, view in batch.views.items()}
                some = Batch(batch.rows[part], batch.labels[part], views, teacher=model)
                figures = method.loss(model, some)
                figures["loss"].backward()  # type: ignore[no-untyped-call]
                weights = method.part_weights(some)
                assert weights is not None
                sums.add({name: float(value.detach()) for name, value in figures.items()}, weights)
                sums.add_gradients(weights["loss"])
            sums.set_gradients()
            gradients = [None if p.grad is None else p.grad.clone() for p in head]
            results.append((sums.means(), gradients))
        (whole, expected), (summed, gradients) = results
        assert summed == pytest.approx(whole, rel=1e-5, abs=1e-7)
        for ours, right in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-7)

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

    def train(self, scene: Path, out: Path, **changes: Any) -> Run:
        settings = {"method": self.name, "options": self.options, **self.tiny, **changes}
        return train(scene / "partial.csv", scene / "images", out, **settings)

    def test_trains_saves_and_loads(self, scene: Path, tmp_path: Path) -> None:
        run = self.train(scene, tmp_path / "run")
        assert run.record.finished
        assert len(run.history()) == 2
        scores = load(run.folder).predict(sorted((scene / "images").iterdir())[:3])
        assert scores.shape == (3, CLASSES)
        assert np.isfinite(scores).all()

    def test_trains_with_lbfgs_or_raises_an_error(
        self, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The cost with weight decay does not increase while it is the same function."""
        tiny = {k: v for k, v in self.tiny.items() if k not in ("batch", "clip", "ema")}
        settings: dict[str, Any] = {
            **tiny,
            "method": self.name,
            "options": self.options,
            "frozen": "all",
            "optimizer": "lbfgs",
            "weight_decay": 1e-4,
        }
        if not METHODS[self.name].in_one_batch:
            with pytest.raises(InputError, match="all images at once"):
                make_settings(**settings)
            return
        costs: list[float] = []
        original = Steps.take

        def take_and_record(
            self: Steps, batch: Batch, position: float, progress: Progress
        ) -> dict[str, float]:
            figures = original(self, batch, position, progress)
            assert progress.final_cost is not None
            costs.append(progress.final_cost)
            return figures

        monkeypatch.setattr(Steps, "take", take_and_record)
        run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **settings)
        assert run.record.finished
        stages = {line["stage"] for line in run.history()}
        changes = len(stages) > 1 or not run.method().is_settled(0)  # then it is another cost
        if not changes:
            first, second = costs
            assert second < first + 1e-6

    def test_every_figure_of_the_log_is_declared(self, scene: Path, tmp_path: Path) -> None:
        run = self.train(scene, tmp_path / "run")
        logged = {name for line in run.history() for name in line} - {*LOGGED}
        assert "loss" in logged
        assert logged <= set(run.method().figures())

    @pytest.mark.exact
    def test_a_stopped_run_ends_in_the_same_bits(
        self, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Stopped within an epoch, between epochs, and after the first step of the next epoch."""
        from partlabel.training import trainer

        whole = self.train(scene, tmp_path / "whole")
        stops = {(0, 2), (1, 0), (1, 1)}
        original = trainer.Trainer._save

        def save_and_stop(self: trainer.Trainer, *, force: bool = False) -> None:
            position = (self.progress.epoch, self.progress.step)
            original(self, force=force or position in stops)
            if position in stops:
                stops.remove(position)
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
        for memory in whole.folder.glob("memory*"):
            folders = (run.folder / memory.name for run in (whole, cut))
            assert_same_memory(*map(LabelMemory.open, folders))


def assert_same_memory(whole: LabelMemory, cut: LabelMemory) -> None:
    """Assert that there are pseudo-labels, and that both memories hold the same, bit for bit."""
    np.testing.assert_array_equal(whole.rounds, cut.rounds)
    is_given = whole.rounds > np.iinfo(np.int16).min
    is_given &= whole.rounds != 0
    assert is_given.any()
    np.testing.assert_array_equal(whole.values[is_given], cut.values[is_given])
