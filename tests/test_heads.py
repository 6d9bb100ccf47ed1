"""Heads against the same things written out by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from partlabel.errors import InputError
from partlabel.models import heads


@given(
    st.integers(0, 1000), st.sampled_from([0.1, 0.5, 0.99, 1, 3, 100]), st.sampled_from([0.1, 2])
)
def test_weldon_is_the_mean_of_the_extremes(seed: int, k_max: float, k_min: float) -> None:
    rng = np.random.default_rng(seed)
    maps = rng.normal(size=(2, 3, *rng.integers(1, 8, 2)))
    pooled = heads.weldon_pool(torch.from_numpy(maps), k_max, k_min)
    places = maps.shape[2] * maps.shape[3]

    def number(k: float) -> int:
        return max(1, round(k * places)) if k < 1 else int(min(k, places))

    for b in range(2):
        for c in range(3):
            scores = np.sort(maps[b, c].ravel())
            expected = (scores[-number(k_max) :].mean() + scores[: number(k_min)].mean()) / 2
            assert float(pooled[b, c]) == pytest.approx(expected)


def test_weldon_takes_twenty_of_fourteen_squared() -> None:
    maps = torch.zeros(1, 1, 14, 14)
    maps.view(-1)[:20] = 2.0
    assert float(heads.weldon_pool(maps, 0.1, 0.1)) == pytest.approx(1.0)
    with pytest.raises(InputError, match="share"):
        heads.weldon_pool(maps, 0.0)


def test_weldon_head() -> None:
    head = heads.Weldon(8, 5)
    maps = torch.randn(2, 8, 7, 7)
    assert head(maps).shape == (2, 5)
    assert head.class_maps(maps).shape == (2, 5, 7, 7)
    torch.testing.assert_close(head(maps), heads.weldon_pool(head.class_maps(maps)))


def naive(refiner: heads.GraphRefiner, logits: Tensor) -> Tensor:
    """Every pair of classes on its own."""
    classes = logits.shape[1]
    refined = []
    for x in logits:
        if refiner.write is None:
            states = [
                torch.zeros(classes).index_fill(0, torch.tensor(v), 1) * x[v]
                for v in range(classes)
            ]
        else:
            states = [x[v] * refiner.write[v] for v in range(classes)]
        for _ in range(refiner.steps):
            heard = []
            for v in range(classes):
                others = [torch.relu(refiner.message(states[u])) for u in range(classes) if u != v]
                heard.append(torch.stack(others).mean(0) if others else torch.zeros_like(states[v]))
            states = [
                refiner.update(m[None], h[None])[0] for m, h in zip(heard, states, strict=True)
            ]
        if refiner.read is None:
            refined.append(torch.stack([x[v] + states[v][v] for v in range(classes)]))
        else:
            read = refiner.read
            refined.append(torch.stack([x[v] + read[v] @ states[v] for v in range(classes)]))
    return torch.stack(refined)


@pytest.mark.parametrize("hidden", [None, 3])
@pytest.mark.parametrize("classes", [1, 2, 6])
def test_the_graph_is_that_of_all_pairs(classes: int, hidden: int | None) -> None:
    torch.manual_seed(0)
    refiner = heads.GraphRefiner(classes, hidden=hidden)
    logits = torch.randn(3, classes, requires_grad=True)
    fast, slow = refiner(logits), naive(refiner, logits)
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-5)
    grads = [torch.autograd.grad(out.square().sum(), logits)[0] for out in (fast, slow)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


def test_no_steps_change_nothing_but_the_state() -> None:
    logits = torch.randn(2, 4)
    torch.testing.assert_close(heads.GraphRefiner(4, steps=0)(logits), 2 * logits)
