"""Methods that know how many labels are present: EPR, ROLE, EN + SCL."""

from pathlib import Path

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel.checkpoint import load_state
from partlabel.errors import InputError
from partlabel.labels import LabelTable
from partlabel.methods import Task
from partlabel.methods.expected import ExpectedPositive, Role, RoleLinearInit, count_positives


class TestExpectedPositive(MethodConformance):
    name = "epr"


class TestRole(MethodConformance):
    name = "role"

    def test_the_estimator_learns_at_its_own_rate(self, scene: Path, tmp_path: Path) -> None:
        moved = []
        for rate in (1.0, 100.0):
            plain = {"optimizer": "sgd", "momentum": 0.0, "epochs": 1}
            options = {"estimator_lr": rate}
            run = self.train(scene, tmp_path / f"{rate}", options=options, **plain)
            moved.append(load_state(run.checkpoint)["method"]["estimator"])
        start = self.make()
        assert isinstance(start, Role)
        known = torch.tensor([[1.0, -1.0, 0.0]])
        start.prepare(Task(LabelTable(["a"], list("abc"), known.numpy()), self.validation(3), 1))
        assert start.estimates()[0, 0] == pytest.approx(0.995)
        assert start.estimates()[0, 1] == pytest.approx(0.005)
        assert 0.4 <= float(start.estimates()[0, 2]) <= 0.6
        # one label table, one start: with the larger rate every estimate goes further
        assert not torch.equal(moved[0], moved[1])
        groups = start.parameter_groups(1e-3)
        assert [group["lr"] for group in groups] == [1e-2]


class TestRoleLinearInit(MethodConformance):
    name = "role-li"
    options = {"warmup": 1}  # noqa: RUF012
    tiny = MethodConformance.tiny | {"epochs": 1}

    def test_first_the_head_alone(self) -> None:
        method = RoleLinearInit(warmup=3, warmup_lr=0.5)
        first, second = method.stages(7, None)
        assert (first.epochs, first.head_only, first.lr) == (3, True, 0.5)
        assert (second.epochs, second.head_only, second.lr) == (7, False, None)


class TestSpatialConsistency(MethodConformance):
    name = "en-scl"


def test_positives_are_counted_on_known_labels() -> None:
    table = LabelTable(
        list("wxyz"), ["a", "b", "c"], [[1, 0, 0], [1, -1, 0], [-1, -1, 0], [1, 1, 0]]
    )
    assert count_positives(table) == pytest.approx(3 / 4 + 1 / 3)
    with pytest.raises(InputError, match="expected"):
        count_positives(LabelTable(["a"], ["x"], [[1]]))
    method = ExpectedPositive(expected=2.5)
    nothing = LabelTable(["a"], ["x"], np.zeros((1, 1)))
    method.prepare(Task(nothing, nothing, 1))
    assert method.positives == 2.5
