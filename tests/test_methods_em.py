"""EM, EM + APL, and the opposite of EM."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel.data import Batch
from partlabel.errors import InputError
from partlabel.labels import LabelTable
from partlabel.methods import METHODS, Task
from partlabel.methods.em import automatic_alpha
from partlabel.methods.em_apl import EmApl


class TestEntropyMaximization(MethodConformance):
    name = "em"


class TestAutomaticAlpha(MethodConformance):
    name = "em"
    options = {"alpha": "auto"}  # noqa: RUF012


class TestEntropyMinimization(MethodConformance):
    name = "entmin"


class TestEmApl(MethodConformance):
    name = "em-apl"
    options = {"warmup": 1}  # noqa: RUF012


class TestAblations(MethodConformance):
    name = "em-apl"
    options = {"warmup": 1, "hard": True, "beta": 1.0, "theta": 0.1, "theta_positive": 0.1}  # noqa: RUF012


def table(labels: Any) -> LabelTable:
    labels = np.asarray(labels)
    names = [f"c{j}" for j in range(labels.shape[1])]
    return LabelTable([f"{i}" for i in range(len(labels))], names, labels)


def test_automatic_alpha_is_that_of_the_paper() -> None:
    """For single positives: 0.2 on VOC (20 classes), 0.01 on CUB (312)."""
    for classes, alpha in ((20, 0.2), (312, 0.01)):
        labels = np.zeros((50, classes), dtype=np.int8)
        labels[np.arange(50), np.arange(50) % classes] = 1
        assert automatic_alpha(table(labels)) == pytest.approx(alpha, rel=0.35)
    partial = np.random.default_rng(0).choice([-1, 0, 1], (400, 20), p=[0.093, 0.9, 0.007])
    assert automatic_alpha(table(partial)) < 0.01
    assert automatic_alpha(table(np.ones((2, 2)))) > 0  # nothing unknown: finite, and unused


def pairs(scores: Any) -> Any:
    """A ``predict`` that gives these scores in two batches."""
    logits = torch.logit(torch.tensor(scores, dtype=torch.float64))

    def predict(forward: Any = None) -> Any:
        yield np.array([2, 0]), logits[[2, 0]]
        yield np.array([1, 3]), logits[[1, 3]]

    return predict


def test_equation_8_by_hand() -> None:
    labels = table([[1, 0], [0, -1], [0, 0], [0, 1]])
    method = EmApl(alpha=0.5, beta=0.25, theta=2 / 3, warmup=1)
    method.prepare(Task(labels, labels, epochs=2))
    scores = [[0.5, 0.2], [0.3, 0.5], [0.1, 0.6], [0.7, 0.5]]
    assert method.before_epoch(0, pairs(scores)) == {}  # warm-up
    # two of three unknown labels of the first class, one of two (rounded) of the second
    assert method.before_epoch(1, pairs(scores)) == {"pseudo_labels": 3.0}
    logits = torch.tensor([[0.3, -0.2], [1.0, 2.0], [-1.0, 0.5], [0.1, 0.4]], dtype=torch.float64)
    rows = torch.tensor([3, 2, 1, 0])
    dense = torch.from_numpy(labels.dense())[rows].float()
    found = method.cost(logits, Batch(rows, dense, {}))

    def entropy(p: float) -> float:
        return float(-p * np.log(p) - (1 - p) * np.log(1 - p))

    def soft(p: float, target: float) -> float:
        return float(-target * np.log(p) - (1 - target) * np.log(1 - p))

    p = torch.sigmoid(logits).numpy()
    cost = -0.5 * entropy(p[0, 0]) - np.log(p[0, 1])  # image 3: stays unknown; present
    cost += 0.25 * soft(p[1, 0], 0.1) - 0.5 * entropy(p[1, 1])  # image 2: soft at .1; unknown
    cost += 0.25 * soft(p[2, 0], 0.3) - np.log(1 - p[2, 1])  # image 1: soft at .3; absent
    cost += -np.log(p[3, 0]) + 0.25 * soft(p[3, 1], 0.2)  # image 0: present; soft at .2
    assert float(found) == pytest.approx(cost / 8, rel=1e-6)


def test_ablations_change_what_is_given() -> None:
    labels = table(np.zeros((4, 1)))
    scores = [[0.2], [0.9], [0.4], [0.6]]
    for options, signs, values in (
        ({"theta": 0.25}, [-1, 0, 0, 0], [0.2]),
        ({"theta": 0.25, "hard": True}, [-1, 0, 0, 0], [0.0]),
        ({"theta": 0.5, "theta_positive": 0.25}, [-1, 1, -1, 0], [0.2, 0.9, 0.4]),
    ):
        method = EmApl(warmup=0, **options)  # type: ignore[arg-type]
        method.prepare(Task(labels, labels, epochs=1))
        method.before_epoch(0, pairs(scores))
        found, soft = method.memory.read(np.arange(4), 1)
        assert found[:, 0].tolist() == signs
        assert soft[found != 0] == pytest.approx(values)


def test_no_epoch_for_pseudo_labels_is_an_error(tmp_path: Path) -> None:
    method = METHODS["em-apl"]()
    with pytest.raises(InputError, match="warm-up"):
        method.prepare(Task(table([[0]]), table([[0]]), epochs=5))
    with pytest.raises(InputError, match="between 0 and 1"):
        EmApl(theta=90)
