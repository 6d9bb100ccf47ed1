"""Methods that temper or change the costs of unknown labels: GR and the large losses."""

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from conformance import MethodConformance
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning import losses
from partlabel.learning.methods import METHODS, Task
from partlabel.learning.methods.gr import GeneralizedRobust
from partlabel.learning.methods.large_loss import PermanentCorrection
from partlabel.models import heads

Floats = NDArray[np.float64]


def random_cells(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(scale=3, size=(6, 5)))
    return logits, torch.from_numpy(rng.choice([-1, 0, 0, 0, 1], size=(6, 5)))


def gr_by_hand(
    x: Floats, y: NDArray[Any], w: float, b: float, mu: float, sigma: float, q2: float, q3: float
) -> tuple[float, Floats]:
    """The loss, and its gradient with k and v fixed, cell by cell with plain numbers."""
    total, gradient = 0.0, np.zeros_like(x)
    for place in np.ndindex(x.shape):
        p = 1 / (1 + math.exp(-x[place]))
        slope = p * (1 - p)
        if y[place] > 0:
            total, gradient[place] = total - math.log(p), p - 1
        elif y[place] < 0:
            total, gradient[place] = total - math.log(1 - p), p
        else:
            k = 1 / (1 + math.exp(-(w * p + b)))
            v = math.exp(-((p - mu) ** 2) / (2 * sigma**2))
            total += v * (k * (1 - p**q2) / q2 + (1 - k) * (1 - (1 - p) ** q3) / q3)
            own = -k * p ** (q2 - 1) + (1 - k) * (1 - p) ** (q3 - 1)
            gradient[place] = v * own * slope
    return total / x.size, gradient / x.size


@pytest.mark.parametrize("values", [(0, -2, 0.5, 2, 0.01, 1), (2, -2, 0.8, 0.5, 0.3, 0.7)])
def test_gr_is_the_formula_of_the_paper(values: tuple[float, ...]) -> None:
    logits, labels = random_cells()
    logits.requires_grad_()
    loss = losses.generalized_robust(logits, labels, *values)
    loss.backward()  # type: ignore[no-untyped-call]
    expected, gradient = gr_by_hand(logits.detach().numpy(), labels.numpy(), *values)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-9)
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), gradient, rtol=1e-7, atol=1e-12)


def test_a_tempered_cost_is_between_cross_entropy_and_the_error() -> None:
    cost = torch.tensor([0.1, 2.0, 50.0, 1e4], dtype=torch.float64)
    assert losses.tempered(cost, 1e-9).tolist() == pytest.approx(cost.tolist(), rel=1e-4)
    assert losses.tempered(cost, 1.0).tolist() == pytest.approx((1 - torch.exp(-cost)).tolist())


@pytest.mark.parametrize("name", ["generalized_robust", "large_loss"])
def test_losses_are_finite_for_any_logit(name: str) -> None:
    logits = torch.tensor([[-1e4, 1e4, 0.0, 1e4]], requires_grad=True)
    for kind in (-1, 0, 1):
        loss = getattr(losses, name)(logits, torch.full((1, 4), kind))
        (gradient,) = torch.autograd.grad(loss, logits)
        assert bool(torch.isfinite(loss))
        assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("correct", [False, True])
def test_large_losses_are_rejected_or_corrected(share: float, correct: bool) -> None:
    logits, labels = random_cells(1)
    x, y = logits.numpy(), labels.numpy()
    cost = np.logaddexp(0, np.where(y > 0, -x, x))
    unknown = sorted(zip(*np.nonzero(y == 0), strict=True), key=lambda place: -cost[place])
    for place in unknown[: math.ceil(share * x.size)]:
        cost[place] = np.logaddexp(0, -x[place]) if correct else 0.0
    loss = losses.large_loss(logits, labels, share, correct=correct)
    assert float(loss) == pytest.approx(cost.mean(), rel=1e-9)


def test_boosted_maps() -> None:
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(2, 3, 4, 5))
    expected = np.where(maps > 0, 5 * maps, maps).mean(axis=(2, 3))
    np.testing.assert_allclose(heads.boosted_pool(torch.from_numpy(maps), 5).numpy(), expected)
    head = heads.Boosted(7, 3, alpha=1.0)
    features = torch.randn(2, 7, 4, 4)
    plain = head.classifier(features).mean(dim=(2, 3))
    torch.testing.assert_close(head(features), plain)


class TestGeneralizedRobust(MethodConformance):
    name = "gr"

    def test_values_go_from_the_first_to_the_last(self) -> None:
        method = GeneralizedRobust(w=0, w_end=2, sigma=2, sigma_end=0.5)
        table = LabelTable(["a"], ["x"], [[1]])
        method.prepare(Task(table, table, epochs=5))
        logged = [method.before_epoch(n, lambda forward=None: iter(())) for n in range(5)]
        assert [line["w"] for line in logged] == pytest.approx([0, 0.5, 1, 1.5, 2])
        assert [line["sigma"] for line in logged] == pytest.approx([2, 1.625, 1.25, 0.875, 0.5])
        logits, labels = random_cells(2)
        batch = Batch(torch.arange(6), labels, {})
        last = losses.generalized_robust(logits, labels, 2, -2, 0.8, 0.5, 0.01, 1)
        assert float(method.cost(logits, batch)) == pytest.approx(float(last))


class LargeLossConformance(MethodConformance):
    options: ClassVar[dict[str, Any]] = {"delta": 5}

    def test_the_share_grows(self) -> None:
        method = METHODS[self.name](delta=5)
        shares = [method.before_epoch(n, lambda forward=None: iter(()))["large"] for n in range(3)]
        assert shares == pytest.approx([0, 0.05, 0.1])


class TestRejection(LargeLossConformance):
    name = "ll-r"


class TestCorrection(LargeLossConformance):
    name = "ll-ct"

    def test_corrected_labels_count_as_present(self) -> None:
        method = METHODS["ll-ct"](delta=20)
        method.before_epoch(1, lambda forward=None: iter(()))
        logits, labels = random_cells(3)
        cost = method.cost(logits, Batch(torch.arange(6), labels, {}))  # type: ignore[operator]
        assert float(cost) == float(losses.large_loss(logits, labels, 0.2, correct=True))


class TestPermanentCorrection(MethodConformance):
    name = "ll-cp"
    options: ClassVar[dict[str, Any]] = {"delta": 5}

    def test_given_labels_stay_and_known_ones_do_not_change(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        values = rng.choice([-1, 0, 0, 1], size=(10, 4))
        table = LabelTable([f"{n}" for n in range(10)], list("abcd"), values)
        method = PermanentCorrection(delta=10)
        method.prepare(Task(table, table, epochs=4, folder=tmp_path))
        scores = torch.from_numpy(rng.normal(size=(10, 4)))
        passes = [(np.arange(5), scores[:5]), (np.arange(5, 10), scores[5:])]
        given = set()
        for epoch in (1, 2):
            figures = method.before_epoch(epoch, lambda forward=None: iter(passes))
            assert figures == {"pseudo_labels": 4.0}  # 10% of 20 labels in each of two parts
            for rows in (range(5), range(5, 10)):
                free = [(i, j) for i in rows for j in range(4) if values[i, j] == 0]
                free = [place for place in free if place not in given]
                given |= set(sorted(free, key=lambda place: -float(scores[place]))[:2])
        signs, _ = method.pseudo.read(torch.arange(10))
        assert {(int(i), int(j)) for i, j in np.argwhere(signs.numpy() > 0)} == given
        wanted = values.copy()
        for place in given:
            wanted[place] = 1
        batch = Batch(torch.arange(10), torch.from_numpy(values).float(), {})
        expected = losses.assume_negative(scores, torch.from_numpy(wanted))
        assert float(method.cost(scores, batch)) == pytest.approx(float(expected))


def test_the_boosted_head_trains(scene: Path, tmp_path: Path) -> None:
    from partlabel.training.train import train

    run = train(
        scene / "partial.csv", scene / "images", tmp_path / "run", method="ll-r", epochs=2,
        frozen="all", head="boosted", head_options={"alpha": 3}, size=64,
        backbone="test_efficientnet", weights="none",
    )  # fmt: skip
    head = run.classifier().head
    assert isinstance(head, heads.Boosted)
    assert head.alpha == 3
