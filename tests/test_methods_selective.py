"""Methods that decide in every batch what unknown labels count as: SPLC, CSL."""

from pathlib import Path

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel.checkpoint import load_state
from partlabel.errors import PartlabelWarning
from partlabel.formats import read_labels
from partlabel.labels import LabelTable
from partlabel.methods import Task
from partlabel.methods.selective import ClassAwareSelective, SelfPaced


class TestSelfPaced(MethodConformance):
    name = "splc"

    def test_corrects_from_the_second_epoch_on(self) -> None:
        method = SelfPaced()
        for epoch, correct in ((0, False), (1, True), (2, True)):
            method.before_epoch(epoch, lambda forward=None: iter(()))
            assert bool(method.correct) is correct


class TestClassAwareSelective(MethodConformance):
    name = "csl"
    options = {"warmup": 1}  # noqa: RUF012
    tiny = MethodConformance.tiny | {"epochs": 1}

    def test_the_first_model_only_serves(self, scene: Path, tmp_path: Path) -> None:
        """With no class frequent, one step of the model is the same whether there was a first."""
        step = {"optimizer": "sgd", "lr": 1.0, "batch": 64, "frozen": "all"}
        weights, runs = [], []
        for warmup in (0, 1):
            options = {"warmup": warmup, "prior": 1.0}
            runs.append(self.train(scene, tmp_path / f"{warmup}", options=options, **step))
            weights.append(load_state(runs[-1].folder / "best.safetensors"))
        assert runs[1].record.best_epoch == 2
        assert runs[1].history()[0]["loss"] != runs[1].history()[1]["loss"]
        for name in weights[0]:
            torch.testing.assert_close(weights[0][name], weights[1][name])

    def test_frequencies_are_means_of_probabilities(self) -> None:
        method = ClassAwareSelective()
        labels = LabelTable(list("abc"), ["x", "y"], [[1, -1]] * 3)
        method.prepare(Task(labels, self.validation(2), 1))
        logits = torch.tensor([[0.0, 2.0], [1.0, -3.0], [4.0, 0.5]])
        parts = [(np.arange(2), logits[:2]), (np.array([2]), logits[2:])]
        method.after_stage(0, lambda forward=None: iter(parts))
        torch.testing.assert_close(method.frequency, torch.sigmoid(logits).mean(dim=0))

    def test_positives_alone_train_no_first_model(self, scene: Path) -> None:
        labels = read_labels(scene / "labels.csv")
        only = LabelTable(labels.ids, labels.classes, np.maximum(labels.dense(), 0))
        with pytest.warns(PartlabelWarning, match="first model of csl"):
            ClassAwareSelective().prepare(Task(only, labels, 1))
        ClassAwareSelective(warmup=0).prepare(Task(only, labels, 1))
