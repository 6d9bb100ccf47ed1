"""Methods that count unknown labels as absent."""

from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel.images.batches import Batch
from partlabel.learning.methods import METHODS
from partlabel.models.heads import Linear
from trained import tiny_model


class TestAssumeNegative(MethodConformance):
    name = "an"

    def test_unknown_counts_as_absent(self) -> None:
        unknown, _ = self.cost([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]])
        absent, _ = self.cost([[1, -1, -1, -1, -1], [-1, 1, -1, -1, -1]])
        assert unknown == absent


class TestDownWeighted(MethodConformance):
    name = "dw"


class TestWeakAssumeNegative(MethodConformance):
    name = "wan"

    def test_unknown_labels_have_weight_1_over_c_minus_1(self) -> None:
        costs = {}
        for labels in ([0, 0, 0, 0, 0], [-1, -1, -1, -1, -1]):
            costs[labels[0]], _ = self.cost([labels] * 3)
        assert costs[0] == pytest.approx(costs[-1] / 4)


class TestWeightNorm1(MethodConformance):
    name = "l1r"


class TestWeightNorm2(MethodConformance):
    name = "l2r"


@pytest.mark.parametrize(("name", "power"), [("l1r", 1), ("l2r", 2)])
def test_the_penalty_is_on_trained_weights(name: str, power: int) -> None:
    method = METHODS[name](weight=0.5)
    model = tiny_model(method, 3)
    images = torch.zeros((2, 3, 64, 64), dtype=torch.uint8)
    batch = Batch(torch.arange(2), torch.zeros(2, 3), {"weak": images})
    model.backbone.requires_grad_(False)
    assert isinstance(model.head, Linear)
    weight = model.head.classifier.weight.detach().numpy()
    expected = 0.5 * (np.abs(weight) ** power).sum()
    parts = method.loss(model.eval(), batch)
    plain = METHODS["an"]().loss(model, batch)
    assert float(parts["norm"].detach()) == pytest.approx(expected, rel=1e-5)
    assert float(parts["loss"].detach()) == pytest.approx(float(plain["loss"].detach()) + expected)


class TestLabelSmoothing(MethodConformance):
    name = "ls"


class TestNegativeLabelSmoothing(MethodConformance):
    name = "n-ls"


class TestFocal(MethodConformance):
    name = "focal"


class TestFocalOnKnownLabels(MethodConformance):
    name = "focal"
    options: ClassVar[dict[str, Any]] = {"unknown": "ignore"}

    def test_unknown_labels_cost_nothing(self) -> None:
        nothing, norm = self.cost([[0, 0, 0, 0, 0]] * 3)
        assert (nothing, norm) == (0.0, 0.0)


class TestAsymmetric(MethodConformance):
    name = "asl"
