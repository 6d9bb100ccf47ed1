"""Losses equal plain numpy implementations, and are finite for extreme logits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.multiprocessing.spawn import start_processes

from partlabel.learning import losses


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any]:
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 6)))
    logits = draw(hnp.arrays(np.float64, shape, elements=st.floats(-30, 30)))
    labels = draw(hnp.arrays(np.int64, shape, elements=st.sampled_from([-1, 0, 1])))
    return logits, labels


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The cost of each cell: -log p is log(1 + exp(-x)), and -log(1 - p) is log(1 + exp(x))."""
    return np.where(labels == 0, 0, np.logaddexp(0, -labels * logits))


def torch_loss(name: str, logits: Any, labels: Any, **more: Any) -> float:
    loss = getattr(losses, name)(torch.from_numpy(logits), torch.from_numpy(labels), **more)
    return float(loss)


@given(cases())
def test_bce(case: Any) -> None:
    logits, labels = case
    cost, known = cross_entropy(logits, labels), labels != 0
    assert torch_loss("bce", logits, labels) == pytest.approx(cost.sum() / cost.size, abs=1e-9)
    by_batch = cost.sum() / max(known.sum(), 1)
    assert torch_loss("bce", logits, labels, normalize="batch") == pytest.approx(by_batch, abs=1e-9)
    assert torch_loss("batch_bce", logits, labels) == pytest.approx(by_batch, abs=1e-9)
    by_image = np.mean([c.sum() / max(k.sum(), 1) for c, k in zip(cost, known, strict=True)])
    assert torch_loss("bce", logits, labels, normalize="image") == pytest.approx(by_image, abs=1e-9)


def sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)) if x >= 0 else np.exp(x) / (1 + np.exp(x)))


def pos(x: float) -> float:
    return float(np.logaddexp(0, -x))


def neg(x: float) -> float:
    return float(np.logaddexp(0, x))


def entropy(x: float) -> float:
    return sigmoid(x) * pos(x) + sigmoid(-x) * neg(x)


def shifted(x: float, margin: float) -> float:
    return max(sigmoid(x) - margin, 0.0)


# the costs of a present, an unknown and an absent cell, as in the papers
CELLS: dict[str, tuple[dict[str, float], Callable[..., tuple[float, float, float]]]] = {
    "assume_negative": ({}, lambda x: (pos(x), neg(x), neg(x))),
    "down_weighted": ({"weight": 0.1}, lambda x, weight: (pos(x), weight * neg(x), neg(x))),
    "label_smoothing": (
        {"epsilon": 0.1},
        lambda x, epsilon: (
            (1 - epsilon) * pos(x) + epsilon * neg(x),
            (1 - epsilon) * neg(x) + epsilon * pos(x),
            (1 - epsilon) * neg(x) + epsilon * pos(x),
        ),
    ),
    "negative_label_smoothing": (
        {"epsilon": 0.3},
        lambda x, epsilon: (pos(x), (1 - epsilon) * neg(x) + epsilon * pos(x), neg(x)),
    ),
    "focal": (
        {"gamma": 2.0, "alpha": 0.75},
        lambda x, gamma, alpha: (
            alpha * sigmoid(-x) ** gamma * pos(x),
            (1 - alpha) * sigmoid(x) ** gamma * neg(x),
            (1 - alpha) * sigmoid(x) ** gamma * neg(x),
        ),
    ),
    "asymmetric": (
        {"gamma_positive": 0.5, "gamma_negative": 2.0, "margin": 0.2},
        lambda x, gamma_positive, gamma_negative, margin: (
            sigmoid(-x) ** gamma_positive * pos(x),
            *[shifted(x, margin) ** gamma_negative * -np.log1p(-shifted(x, margin))] * 2,
        ),
    ),
    "entropy_maximization": (
        {"alpha": 0.2},
        lambda x, alpha: (pos(x), -alpha * entropy(x), neg(x)),
    ),
    "entropy_minimization": (
        {"weight": 0.01},
        lambda x, weight: (pos(x), weight * entropy(x), neg(x)),
    ),
}


@pytest.mark.parametrize("name", CELLS)
@given(case=cases())
def test_means_over_cells(name: str, case: Any) -> None:
    logits, labels = case
    hyper, costs = CELLS[name]
    cells = [
        costs(x, **hyper)[{1: 0, 0: 1, -1: 2}[y]]
        for x, y in zip(logits.flat, labels.flat, strict=True)
    ]
    expected = pytest.approx(sum(cells) / len(cells), rel=1e-7, abs=1e-9)
    assert torch_loss(name, logits, labels, **hyper) == expected


@given(case=cases())
def test_focal_on_known_labels_only(case: Any) -> None:
    logits, labels = case
    cells = [
        CELLS["focal"][1](x, 2.0, 0.75)[0 if y == 1 else 2] if y else 0.0
        for x, y in zip(logits.flat, labels.flat, strict=True)
    ]
    expected = pytest.approx(sum(cells) / len(cells), rel=1e-7, abs=1e-9)
    assert torch_loss("focal", logits, labels, unknown="ignore") == expected


def test_defaults_are_those_of_the_paper() -> None:
    logits, labels = np.array([[0.3, -1.2, 2.0]]), np.array([[1, 0, -1]])
    for name, (hyper, _) in CELLS.items():
        if name != "asymmetric":
            assert torch_loss(name, logits, labels) == torch_loss(name, logits, labels, **hyper)
    paper = {"gamma_positive": 0.0, "gamma_negative": 2.0, "margin": 0.2}
    with_settings = torch_loss("asymmetric", logits, labels, **paper)
    assert torch_loss("asymmetric", logits, labels) == with_settings


@given(cases(), st.sampled_from([0.0, 1.0, 2.0]))
def test_asymmetric_without_margin(case: Any, gamma: float) -> None:
    logits, labels = case
    cells = [
        pos(x) if y == 1 else sigmoid(x) ** gamma * neg(x)
        for x, y in zip(logits.flat, labels.flat, strict=True)
    ]
    loss = torch_loss("asymmetric", logits, labels, gamma_negative=gamma, margin=0.0)
    assert loss == pytest.approx(np.mean(cells), rel=1e-7, abs=1e-9)


def epr(logits: Any, labels: Any, expected: float) -> float:
    scores = np.vectorize(sigmoid)(logits)
    penalty = ((scores.sum(axis=1).mean() - expected) / logits.shape[1]) ** 2
    return float(cross_entropy(logits, labels).mean() + penalty)


@given(cases(), st.floats(0.5, 4))
def test_expected_positive(case: Any, expected: float) -> None:
    loss = torch_loss("expected_positive", *case, expected=expected)
    assert loss == pytest.approx(epr(case[0], case[1], expected), rel=1e-7, abs=1e-9)


@given(cases(), st.floats(0.5, 4), st.integers(0, 100))
def test_role(case: Any, expected: float, seed: int) -> None:
    logits, labels = case
    estimates = np.random.default_rng(seed).normal(0, 3, logits.shape)
    tensor = torch.from_numpy(estimates)
    loss = torch_loss("role", logits, labels, estimates=tensor, expected=expected)
    costs = []
    for own, other in ((logits, estimates), (estimates, logits)):
        cross = [
            sigmoid(t) * pos(x) + sigmoid(-t) * neg(x)
            for x, t in zip(own.flat, other.flat, strict=True)
        ]
        costs.append(epr(own, labels, expected) + np.mean(cross))
    assert loss == pytest.approx(np.mean(costs), rel=1e-7, abs=1e-9)


def test_role_stops_the_gradient_between_the_two() -> None:
    """The gradient of the classifier is that of half its own cost, with constant targets."""
    torch.manual_seed(0)
    logits, estimates = (torch.randn(3, 4, dtype=torch.float64) for _ in range(2))
    labels = torch.tensor([[1, 0, 0, -1]] * 3)
    logits.requires_grad_()
    losses.role(logits, labels, estimates=estimates.requires_grad_(), expected=1.5).backward()  # type: ignore[no-untyped-call]
    alone = logits.detach().clone().requires_grad_()
    target = torch.sigmoid(estimates.detach())
    cross = torch.nn.functional.binary_cross_entropy_with_logits(alone, target)
    half = (losses.expected_positive(alone, labels, expected=1.5) + cross) / 2
    half.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert alone.grad is not None
    torch.testing.assert_close(logits.grad, alone.grad)


@given(cases(), st.integers(0, 100))
def test_soft_negative(case: Any, seed: int) -> None:
    logits, labels = case
    soft = np.random.default_rng(seed).random(logits.shape)
    soft.flat[0] = 0.0  # a score of 0 is a valid target
    cells = [
        s * pos(x) + (1 - s) * neg(x) if y == -1 else 0.0
        for x, y, s in zip(logits.flat, labels.flat, soft.flat, strict=True)
    ]
    loss = torch_loss("soft_negative", logits, labels, beta=0.3, targets=torch.from_numpy(soft))
    assert loss == pytest.approx(0.3 * np.mean(cells), rel=1e-7, abs=1e-9)


@given(cases(), st.sampled_from([0.0, 1.0, 2.0]), st.booleans())
def test_splc(case: Any, gamma: float, correct: bool) -> None:
    """The formula of the paper per cell; the margin of 1 applies to labels known to be present."""
    logits, labels = case
    cells = []
    for x, y in zip(logits.flat, labels.flat, strict=True):
        if y == 1:
            cells.append(sigmoid(1 - x) ** gamma * pos(x - 1))
        elif y == 0 and correct and sigmoid(x) > 0.6:
            cells.append(sigmoid(-x) ** gamma * pos(x))
        else:
            cells.append(sigmoid(x) ** gamma * neg(x))
    loss = torch_loss("splc", logits, labels, gamma=gamma, correct=correct)
    assert loss == pytest.approx(np.mean(cells), rel=1e-7, abs=1e-9)


@given(cases(), st.integers(0, 3), st.integers(0, 100))
def test_selective(case: Any, ignored: int, seed: int) -> None:
    _, labels = case
    rng = np.random.default_rng(seed)
    logits = rng.permutation(labels.size).reshape(labels.shape) / 3 - 3  # all different
    frequent = rng.random(labels.shape[1]) < 0.3
    unknown = sorted(map(tuple, np.argwhere(labels == 0)), key=lambda cell: -logits[cell])
    most_likely = set(unknown[: ignored * len(labels)])
    cells = []
    for cell in np.ndindex(labels.shape):
        x, y = float(logits[cell]), labels[cell]
        if y == 1:
            cells.append(sigmoid(-x) ** 0.5 * pos(x))
        elif y == -1:
            cells.append(sigmoid(x) ** 1.5 * neg(x))
        else:
            is_ignored = cell in most_likely or frequent[cell[1]]
            cells.append(0.0 if is_ignored else sigmoid(x) ** 3 * neg(x))
    gammas = {"gamma_positive": 0.5, "gamma_negative": 1.5, "gamma_unknown": 3.0}
    prior = torch.from_numpy(np.where(frequent, 0.06, 0.05))
    loss = torch_loss("selective", logits, labels, ignored=ignored, prior=prior, **gammas)
    assert loss == pytest.approx(np.mean(cells), rel=1e-7, abs=1e-9)


def test_the_focusing_factor_of_selective_gets_no_gradient() -> None:
    """For an absent cell the gradient is p^gamma times that of -log(1 - p), which is p."""
    logits = torch.tensor([[0.7]], dtype=torch.float64, requires_grad=True)
    losses.selective(logits, torch.tensor([[-1]]), gamma_negative=2.0).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert float(logits.grad) == pytest.approx(sigmoid(0.7) ** 3)


@given(cases(), st.floats(0, 3), st.integers(0, 100))
def test_expected_negative(case: Any, expected: float, seed: int) -> None:
    logits, labels = case
    prior = np.random.default_rng(seed).permutation(logits.size).reshape(logits.shape)
    unknown = np.argwhere(labels == 0)
    likeliest = sorted(map(tuple, unknown), key=lambda cell: -prior[cell])
    missing = max(round(len(labels) * expected - (labels == 1).sum()), 0)
    assumed = np.where(labels == 0, -1, labels)
    for cell in likeliest[:missing]:
        assumed[cell] = 0
    loss = torch_loss(
        "expected_negative", logits, labels, prior=torch.from_numpy(prior), expected=expected
    )
    assert loss == pytest.approx(cross_entropy(logits, assumed).mean(), abs=1e-9)


def test_spatial_consistency() -> None:
    rng = np.random.default_rng(0)
    maps, teacher = rng.normal(0, 2, (2, 3, 4, 2, 2))
    labels = rng.integers(-1, 2, (3, 4))
    logits = maps.mean(axis=(2, 3))
    difference = (np.vectorize(sigmoid)(maps) - np.vectorize(sigmoid)(teacher)) ** 2
    prior = torch.from_numpy(teacher.mean(axis=(2, 3)))
    negatives = torch_loss("expected_negative", logits, labels, prior=prior, expected=2.0)
    tensors = [torch.from_numpy(m).requires_grad_() for m in (maps, teacher)]
    loss = losses.spatial_consistency(
        torch.from_numpy(logits),
        torch.from_numpy(labels),
        0.5,
        maps=tensors[0],
        teacher_maps=tensors[1],
        expected=2.0,
    )
    assert float(loss.detach()) == pytest.approx(negatives + 0.5 * difference.mean())
    loss.backward()  # type: ignore[no-untyped-call]
    assert tensors[0].grad is not None
    assert tensors[1].grad is None


GRID = [*np.linspace(-12, 12, 97), -1e4, -100, -30, 30, 100, 1e4]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)]
)
def test_gradient_of_entropy_maximization(dtype: torch.dtype, tolerance: float) -> None:
    """Equation 5: alpha x p (1 - p) for unknown cells, p - 1 for present ones."""
    logits = torch.tensor([GRID], dtype=dtype, requires_grad=True)
    exact = logits.detach().double().numpy()[0]
    for label, gradient in (
        (0, lambda x: 0.2 * x * sigmoid(x) * sigmoid(-x)),
        (1, lambda x: -sigmoid(-x)),
        (-1, sigmoid),
    ):
        logits.grad = None
        losses.entropy_maximization(logits, torch.full((1, len(GRID)), label), 0.2).backward()  # type: ignore[no-untyped-call]
        assert logits.grad is not None
        computed = logits.grad[0].double().numpy() * len(GRID)
        with np.errstate(over="ignore"):
            expected = [gradient(float(x)) for x in exact]
        np.testing.assert_allclose(computed, expected, rtol=tolerance, atol=1e-12)


def test_gradient_of_assume_negative() -> None:
    """Equation 2 of the same paper: p for unknown cells, p - 1 for present ones."""
    logits = torch.tensor([GRID], dtype=torch.float64, requires_grad=True)
    for label, offset in ((0, 0.0), (1, 1.0)):
        logits.grad = None
        losses.assume_negative(logits, torch.full((1, len(GRID)), label)).backward()  # type: ignore[no-untyped-call]
        assert logits.grad is not None
        with np.errstate(over="ignore"):
            expected = [sigmoid(x) - offset for x in GRID]
        np.testing.assert_allclose(logits.grad[0].numpy() * len(GRID), expected, atol=1e-12)


ALL = [
    *CELLS,
    "bce",
    "partial_bce",
    "batch_bce",
    "known_positives",
    "expected_positive",
    "role",
    "soft_negative",
    "splc",
    "selective",
]
MORE: dict[str, dict[str, Any]] = {
    "expected_positive": {"expected": 1.5},
    "role": {"expected": 1.5, "estimates": torch.tensor([[1e4, -1e4, -1e4, 1e4, 1e4, -1e4]])},
    "soft_negative": {"targets": torch.tensor([[0, 0.5, 1, 0, 0.5, 1]])},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ALL)
def test_losses_and_gradients_of_extreme_logits_are_finite(name: str, dtype: torch.dtype) -> None:
    values = [[1e4, -1e4, 1e4, -1e4, 1e4, -1e4]]
    logits = torch.tensor(values, dtype=dtype, requires_grad=True)
    loss = getattr(losses, name)(logits, torch.tensor([[1, 1, -1, -1, 0, 0]]), **MORE.get(name, {}))
    loss.backward()
    assert torch.isfinite(loss)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    if name not in ("soft_negative", "known_positives"):
        assert float(logits.grad[0, 1]) < 0 <= float(logits.grad[0, 2])


def test_the_loss_is_0_if_nothing_is_known() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    kinds: tuple[losses.Normalize, ...] = ("classes", "batch", "image")
    for normalize in kinds:
        loss = losses.bce(logits, torch.zeros(3, 4), normalize)
        loss.backward()  # type: ignore[no-untyped-call]
        assert float(loss.detach()) == 0
    assert logits.grad is not None
    assert float(logits.grad.abs().sum()) == 0


def _gradient_in_a_process(rank: int, folder: str) -> None:
    """Save the gradient of one half of a batch, averaged over two processes."""
    from torch import distributed

    distributed.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
    logits, labels = _batch_for_processes()
    half = logits[2 * rank : 2 * rank + 2].clone().requires_grad_()
    losses.batch_bce(half, labels[2 * rank : 2 * rank + 2]).backward()  # type: ignore[no-untyped-call]
    assert half.grad is not None
    torch.save(half.grad / 2, f"{folder}/{rank}")
    distributed.destroy_process_group()


def _batch_for_processes() -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.linspace(-2, 3, 12).view(4, 3)
    return logits, torch.tensor([[1, 0, 0], [0, 0, 0], [1, -1, 0], [1, 1, -1]])


def test_batch_bce_counts_the_labels_of_all_processes(tmp_path: Path) -> None:
    start_processes(_gradient_in_a_process, (str(tmp_path),), nprocs=2, start_method="spawn")  # type: ignore[no-untyped-call]
    logits, labels = _batch_for_processes()
    losses.batch_bce(logits.requires_grad_(), labels).backward()  # type: ignore[no-untyped-call]
    halves = torch.cat([torch.load(tmp_path / f"{rank}", weights_only=True) for rank in (0, 1)])
    torch.testing.assert_close(halves, logits.grad)


def test_known_positives() -> None:
    logits = np.array([[0.0, 2.0, -1.0]])
    assert torch_loss("known_positives", logits, np.array([[1, 1, 0]])) == pytest.approx(
        (pos(0.0) + pos(2.0)) / 2
    )
    assert torch_loss("known_positives", logits, np.array([[0, -1, 0]])) == 0


@given(cases(), st.sampled_from([(-4.45, 5.45, 1.0), (1.0, 0.0, -1.0), (-2.0, 3.0, 2.5)]))
def test_partial_bce(case: Any, g: tuple[float, float, float]) -> None:
    """Equations 1 and 2, computed for each image."""
    logits, labels = case
    alpha, beta, gamma = g
    costs = []
    for row, known in zip(cross_entropy(logits, labels), labels != 0, strict=True):
        share = known.mean()
        weight = alpha * share**gamma + beta if share else 0.0
        costs.append(weight / len(row) * row.sum())
    loss = torch_loss("partial_bce", logits, labels, alpha=alpha, beta=beta, gamma=gamma)
    assert loss == pytest.approx(np.mean(costs), rel=1e-7, abs=1e-9)


@given(cases(), st.sampled_from([0.5, 1.0, -1.0]), st.sampled_from([2.0, 5.0]))
def test_partial_bce_equals_bce_if_all_labels_are_known(
    case: Any, gamma: float, value: float
) -> None:
    logits, labels = case
    labels = np.where(labels == 0, 1, labels)
    plain = torch_loss("bce", logits, labels)
    assert torch_loss("partial_bce", logits, labels) == plain
    alpha, beta = losses.partial_weight(value, 0.1, gamma)
    weighted = torch_loss("partial_bce", logits, labels, alpha=alpha, beta=beta, gamma=gamma)
    assert weighted == pytest.approx(plain, rel=1e-12)
    assert alpha * 0.1**gamma + beta == pytest.approx(value)


@pytest.mark.parametrize("gamma", [1.0, -1.0])
def test_partial_bce_ignores_images_without_known_labels(gamma: float) -> None:
    logits = torch.randn(2, 3, requires_grad=True)
    loss = losses.partial_bce(logits, torch.tensor([[0, 0, 0], [1, 0, 0]]), 1.0, 0.0, gamma)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert float(logits.grad[0].abs().sum()) == 0
    assert float(logits.grad[1].abs().sum()) > 0
