"""Ranking and smoothness losses equal loops over all pairs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from partlabel.learning import losses


def mean_over_images(logits: Any, labels: Any, cost: Callable[[Any, Any], float]) -> float:
    """The mean over images of a cost that is a function of the present and absent logits."""
    total = 0.0
    for x, y in zip(logits, labels, strict=True):
        if (y > 0).any() and (y < 0).any():
            total += cost(x[y > 0], x[y < 0])
    return total / len(logits)


def lsep(present: Any, absent: Any) -> float:
    return float(np.log(1 + sum(np.exp(a - b) for a in absent for b in present)))


def ranknet(present: Any, absent: Any) -> float:
    return float(np.mean([np.log(1 + np.exp(a - b)) for a in absent for b in present]))


def warp(present: Any, absent: Any) -> float:
    total = 0.0
    for b in present:
        hinges = [max(0.0, 1 + a - b) for a in absent]
        rank = sum(h > 0 for h in hinges)
        if rank:
            total += sum(1 / r for r in range(1, rank + 1)) * sum(hinges) / rank
    return total


@given(seed=st.integers(0, 10**6), images=st.integers(1, 6), classes=st.integers(1, 7))
@pytest.mark.parametrize("name", ["lsep", "ranknet", "warp"])
def test_equals_a_loop_over_all_pairs(name: str, seed: int, images: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(images, classes)) * 2
    labels = rng.integers(-1, 2, (images, classes))
    x = torch.from_numpy(logits).requires_grad_()
    loss = getattr(losses, name)(x, torch.from_numpy(labels))
    assert float(loss.detach()) == pytest.approx(mean_over_images(logits, labels, globals()[name]))
    loss.backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())
    assert not bool(x.grad[torch.from_numpy(labels) == 0].any())  # unknown labels are ignored


@pytest.mark.parametrize("name", ["lsep", "ranknet", "warp"])
def test_losses_of_extreme_logits_are_finite(name: str) -> None:
    x = torch.tensor([[1e4, -1e4, 3e4]], requires_grad=True)
    correct = getattr(losses, name)(x, torch.tensor([[1, -1, 1]]))
    wrong = getattr(losses, name)(-x, torch.tensor([[1, -1, 1]]))
    assert float(correct.detach()) == pytest.approx(0, abs=1e-6)
    assert np.isfinite(float(wrong.detach()))
    assert float(wrong.detach()) > 1e4


def test_completed_labels() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(5, 4)) * 3, rng.integers(-1, 2, (5, 4))
    x = torch.from_numpy(logits).requires_grad_()
    completed = losses.completed_labels(x, torch.from_numpy(labels), 0.25)
    for cell in np.ndindex(5, 4):
        y = labels[cell] or 2 / (1 + np.exp(-logits[cell])) - 1
        assert float(completed[cell].detach()) == pytest.approx(y if y > 0 else 0.25 * y)
    (gradient,) = torch.autograd.grad(completed.sum(), x)
    assert torch.equal(gradient != 0, torch.from_numpy(labels == 0))


def test_smoothness() -> None:
    rng = np.random.default_rng(0)
    y, explained = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    tensors = torch.from_numpy(y), torch.from_numpy(explained)
    expected = np.mean([np.sum((y[i] - np.tanh(explained[i])) ** 2) for i in range(3)])
    assert float(losses.label_smoothness(*tensors)) == pytest.approx(expected)
    expected = np.mean([np.sum((y[i] - explained[i]) ** 2) for i in range(3)])
    assert float(losses.feature_smoothness(*tensors)) == pytest.approx(expected)
