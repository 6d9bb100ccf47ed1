"""Losses against plain numpy, and at logits where careless formulas overflow."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from partlabel import losses


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any]:
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 6)))
    logits = draw(hnp.arrays(np.float64, shape, elements=st.floats(-30, 30)))
    labels = draw(hnp.arrays(np.int64, shape, elements=st.sampled_from([-1, 0, 1])))
    return logits, labels


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Cell by cell: -log p is log(1 + exp(-x)), and -log(1 - p) is log(1 + exp(x))."""
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


@given(cases())
def test_assume_negative(case: Any) -> None:
    logits, labels = case
    cost = cross_entropy(logits, np.where(labels == 1, 1, -1))
    assert torch_loss("assume_negative", logits, labels) == pytest.approx(cost.mean(), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["bce", "batch_bce", "assume_negative"])
def test_extreme_logits(name: str, dtype: torch.dtype) -> None:
    logits = torch.tensor([[1e4, -1e4, 1e4, -1e4, 1e4]], dtype=dtype, requires_grad=True)
    loss = getattr(losses, name)(logits, torch.tensor([[1, 1, -1, -1, 0]]))
    loss.backward()
    assert torch.isfinite(loss)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert float(logits.grad[0, 1]) < 0 < float(logits.grad[0, 2])


def test_nothing_known_costs_nothing() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    kinds: tuple[losses.Normalize, ...] = ("classes", "batch", "image")
    for normalize in kinds:
        loss = losses.bce(logits, torch.zeros(3, 4), normalize)
        loss.backward()  # type: ignore[no-untyped-call]
        assert float(loss.detach()) == 0
    assert logits.grad is not None
    assert float(logits.grad.abs().sum()) == 0
