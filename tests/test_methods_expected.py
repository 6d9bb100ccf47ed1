"""Methods that use the expected number of present labels: EPR, ROLE, EN + SCL."""

from pathlib import Path

import numpy as np
import pytest

from conformance import MethodConformance
from partlabel.base.errors import InputError
from partlabel.labels import LabelTable
from partlabel.learning.methods import Task
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
