"""Methods that use the expected number of present labels: EPR, ROLE, EN + CL, EN + SCL."""

from pathlib import Path

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel.base.errors import InputError
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning.methods import Task
from partlabel.learning.methods.en_cl import PredictionConsistency
from partlabel.learning.methods.role import ExpectedPositive, Role, RoleLinearInit, count_positives
from partlabel.training.checkpoint import load_state


class TestExpectedPositive(MethodConformance):
    name = "epr"


class TestRole(MethodConformance):
    name = "role"

    def test_initial_estimates_are_certain_for_known_labels(self) -> None:
        method = Role()
        labels = LabelTable(["a"], list("abc"), [[1, -1, 0]])
        method.prepare(Task(labels, self.validation(3), 1))
        estimates = method.estimates()[0]
        assert estimates[0] == pytest.approx(0.995)
        assert estimates[1] == pytest.approx(0.005)
        assert 0.4 <= float(estimates[2]) <= 0.6

    def test_the_estimates_have_their_own_learning_rate(self, scene: Path, tmp_path: Path) -> None:
        """In one step of sgd, 100 times the learning rate changes estimates 100 times as much."""
        estimates = []
        for number, rate in enumerate((1e-9, 1.0, 100.0)):
            step = {"optimizer": "sgd", "momentum": 0.0, "epochs": 1, "batch": 64}
            options = {"estimator_lr": rate}
            run = self.train(scene, tmp_path / f"{number}", options=options, **step)
            estimates.append(load_state(run.checkpoint)["method"]["estimator"])
        small, large = ((after - estimates[0]).double().norm() for after in estimates[1:])
        assert float(small) > 0
        assert float(large / small) == pytest.approx(100, rel=0.01)


class TestRoleLinearInit(MethodConformance):
    name = "role-li"
    options = {"warmup": 1}  # noqa: RUF012
    tiny = MethodConformance.tiny | {"epochs": 1}

    def test_the_first_stage_trains_the_head_only(self) -> None:
        method = RoleLinearInit(warmup=3, warmup_lr=0.5)
        first, second = method.stages(7, None)
        assert (first.epochs, first.head_only, first.lr) == (3, True, 0.5)
        assert (second.epochs, second.head_only, second.lr) == (7, False, None)
        assert len(RoleLinearInit(warmup=0).stages(7, None)) == 1


class TestPredictionConsistency(MethodConformance):
    name = "en-cl"

    def test_two_epochs_by_hand(self) -> None:
        """The first prediction is its own mean; the likeliest unknown labels are ignored."""
        rng = np.random.default_rng(0)
        labels = np.array([[1, 0, 0, -1], [0, 0, 0, 0], [0, 1, 0, 0]])
        table = LabelTable(list("abc"), list("wxyz"), labels)
        method = PredictionConsistency(expected=1.5, weight=0.7, momentum=0.6)
        method.prepare(Task(table, table, 2))
        average = None
        for _ in range(2):
            logits = rng.normal(0, 2, labels.shape)
            p = 1 / (1 + np.exp(-logits))
            target = p if average is None else average
            missing = round(3 * 1.5 - 2)  # expected, less the two that are known
            unknown = np.flatnonzero(labels == 0)
            ignored = unknown[np.argsort(-target.flat[unknown])[:missing]]
            costs = np.where(labels > 0, -np.log(p), -np.log(1 - p))
            costs.flat[ignored] = 0
            expected = costs.mean() + 0.7 * ((p - target) ** 2).mean()
            batch = Batch(torch.tensor([0, 1, 2]), torch.from_numpy(labels), {})
            cost = method.cost(torch.from_numpy(logits), batch)
            assert float(cost) == pytest.approx(expected, rel=1e-6)
            average = 0.6 * target + 0.4 * p
            np.testing.assert_allclose(method.average, average, rtol=1e-6)

    def test_means_are_kept_by_image(self) -> None:
        table = LabelTable(list("abc"), ["x"], [[0], [0], [0]])
        method = PredictionConsistency(expected=0.5)
        method.prepare(Task(table, table, 2))
        method.cost(torch.zeros(1, 1), Batch(torch.tensor([2]), torch.zeros(1, 1), {}))
        assert method.seen.tolist() == [False, False, True]
        assert method.average.flatten().tolist() == [0, 0, 0.5]


class TestSpatialConsistency(MethodConformance):
    name = "en-scl"


def test_the_number_of_present_labels_is_estimated_from_known_labels() -> None:
    labels = [[1, 0, -1], [1, -1, -1], [-1, -1, -1], [1, 1, -1]]
    assert count_positives(LabelTable(list("wxyz"), list("abc"), labels)) == pytest.approx(
        3 / 4 + 1 / 3 + 0
    )
    # a class without known absent labels counts as frequent as the others, not as always present
    labels = [[1, -1, 1], [-1, -1, 1]]
    assert count_positives(LabelTable(list("yz"), list("abc"), labels)) == pytest.approx(3 * 1 / 4)
    for labels in ([[1, 1, 1]], [[1, 1, -1], [1, 1, 1]], [[-1, -1, -1]]):
        table = LabelTable([f"{i}" for i in range(len(labels))], list("abc"), labels)
        with pytest.raises(InputError, match="expected"):
            count_positives(table)
    method = ExpectedPositive(expected=2.5)
    unlabelled = LabelTable(["a"], ["x"], np.zeros((1, 1)))
    method.prepare(Task(unlabelled, unlabelled, 1))
    assert method.positives == 2.5
