"""Methods that decide in every batch how unknown labels are treated: SPLC, CSL."""

from pathlib import Path

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.labels.formats import read_labels
from partlabel.learning import losses
from partlabel.learning.methods import Task
from partlabel.learning.methods.splc_csl import ClassAwareSelective, SelfPaced
from partlabel.training.checkpoint import load_state


class TestSelfPaced(MethodConformance):
    name = "splc"

    def test_corrects_from_the_second_epoch_on(self) -> None:
        method = SelfPaced()
        for epoch, correct in ((0, False), (1, True), (2, True)):
            method.before_epoch(epoch, lambda forward=None: iter(()))
            assert bool(method.correct) is correct
        labels = LabelTable(["a"], ["x"], [[1]])
        with pytest.raises(InputError, match="start = 3"):
            SelfPaced(start=3).prepare(Task(labels, labels, epochs=3))

    def test_settings_reach_the_loss(self) -> None:
        method = SelfPaced(threshold=0.4, start=0, margin=2.0, gamma=0.5)
        method.before_epoch(0, lambda forward=None: iter(()))
        logits = torch.tensor([[0.1, -0.1, 2.0]])
        batch = Batch(torch.arange(1), torch.tensor([[1.0, 0.0, 0.0]]), {})
        expected = losses.splc(logits, batch.labels, 0.4, 2.0, 0.5)
        assert float(method.cost(logits, batch)) == float(expected)


class TestClassAwareSelective(MethodConformance):
    name = "csl"
    options = {"warmup": 1, "ignored": 1, "prior": 0.9}  # noqa: RUF012
    tiny = MethodConformance.tiny | {"epochs": 1}

    def test_the_first_model_only_estimates_frequencies(self, scene: Path, tmp_path: Path) -> None:
        """Without frequent classes, one step gives the same weights with and without it."""
        step = {"optimizer": "sgd", "lr": 1.0, "batch": 64, "frozen": "all"}
        weights, runs = [], []
        for warmup in (0, 1):
            options = {"warmup": warmup, "prior": 1.0, "ignored": 1}
            runs.append(self.train(scene, tmp_path / f"{warmup}", options=options, **step))
            weights.append(load_state(runs[-1].folder / "best.safetensors"))
        assert runs[1].record.best_epoch == 2
        assert runs[1].history()[0]["loss"] != runs[1].history()[1]["loss"]
        for name in weights[0]:
            torch.testing.assert_close(weights[0][name], weights[1][name])

    def test_frequencies_are_means_of_probabilities(self) -> None:
        method = ClassAwareSelective(ignored=1, prior=0.9)
        labels = LabelTable(list("abc"), ["x", "y"], [[1, -1]] * 3)
        method.prepare(Task(labels, self.validation(2), 1))
        logits = torch.tensor([[0.0, 2.0], [1.0, -3.0], [4.0, 0.5]])
        batches = [(np.arange(2), logits[:2]), (np.array([2]), logits[2:])]
        method.after_stage(0, lambda forward=None: iter(batches))
        torch.testing.assert_close(method.frequency, torch.sigmoid(logits).mean(dim=0))
        method.prior = 0.1
        with pytest.warns(PartlabelWarning, match="larger prior"):
            method.after_stage(0, lambda forward=None: iter(batches))

    def test_warnings_if_all_unknown_labels_would_be_ignored(self, scene: Path) -> None:
        labels = read_labels(scene / "labels.csv")
        positives = LabelTable(labels.ids, labels.classes, np.maximum(labels.dense(), 0))
        with pytest.warns(PartlabelWarning, match="first model of csl"):
            ClassAwareSelective(ignored=1).prepare(Task(positives, labels, 1))
        ClassAwareSelective(warmup=0, ignored=1).prepare(Task(positives, labels, 1))
        with pytest.warns(PartlabelWarning, match="smaller ignored"):
            ClassAwareSelective(warmup=0).prepare(Task(positives, labels, 1))

    def test_settings_reach_the_loss(self) -> None:
        settings = {
            "ignored": 1,
            "gamma_positive": 0.5,
            "gamma_negative": 1.5,
            "gamma_unknown": 3.0,
        }
        method = ClassAwareSelective(**settings, prior=0.3)  # type: ignore[arg-type]
        labels = LabelTable(list("ab"), ["x", "y", "z"], [[1, 0, 0], [-1, 0, 0]])
        method.prepare(Task(labels, labels, 1))
        method.frequency.copy_(torch.tensor([0.1, 0.31, 0.29]))
        logits, dense = torch.randn(2, 3), torch.from_numpy(labels.dense()).float()
        expected = losses.selective(logits, dense, 0.3, prior=method.frequency, **settings)  # type: ignore[arg-type]
        assert float(method.cost(logits, Batch(torch.arange(2), dense, {}))) == float(expected)


class TestClassAwareSelectiveWithTeacher(MethodConformance):
    """With a teacher, which starts again after the first model."""

    name = "csl"
    options = {"warmup": 1, "ignored": 1, "prior": 0.9}  # noqa: RUF012
    tiny = MethodConformance.tiny | {"epochs": 1, "ema": 0.9}

    def test_the_teacher_starts_again(self, scene: Path, tmp_path: Path) -> None:
        progress = load_state(self.train(scene, tmp_path / "run").checkpoint)["progress"]
        assert progress["total_steps"] == 2 * progress["teacher_steps"] > 0
