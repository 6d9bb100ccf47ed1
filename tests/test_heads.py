"""Heads equal plain implementations of their formulas."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from partlabel.base.errors import InputError
from partlabel.learning import losses
from partlabel.models import heads


@given(
    st.integers(0, 1000), st.sampled_from([0.1, 0.5, 0.99, 1, 3, 100]), st.sampled_from([0.1, 2])
)
def test_weldon_is_the_mean_of_the_highest_and_lowest_values(
    seed: int, k_max: float, k_min: float
) -> None:
    rng = np.random.default_rng(seed)
    maps = rng.normal(size=(2, 3, *rng.integers(1, 8, 2)))
    pooled = heads.weldon_pool(torch.from_numpy(maps), k_max, k_min)
    size = maps.shape[2] * maps.shape[3]

    def number(k: float) -> int:
        return max(1, round(k * size)) if k < 1 else int(min(k, size))

    for b in range(2):
        for c in range(3):
            scores = np.sort(maps[b, c].ravel())
            expected = (scores[-number(k_max) :].mean() + scores[: number(k_min)].mean()) / 2
            assert float(pooled[b, c]) == pytest.approx(expected)


def test_weldon_pools_twenty_values_of_a_14_x_14_map() -> None:
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


@given(st.integers(0, 1000), st.sampled_from([1, 3, 5, 100]), st.sampled_from([0.0, 0.5, 2.0]))
def test_saliency_adds_the_highest_values_to_the_mean(seed: int, k: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    height, width = (int(n) for n in rng.integers(1, 8, 2))
    head = heads.Saliency(4, 3, alpha=alpha, k=k).double()
    maps = torch.from_numpy(rng.normal(size=(2, 4, height, width)))
    scores = head.class_maps(maps).detach().numpy()
    weight = head.classifier.weight.detach().numpy()[:, :, 0, 0]
    bias = head.classifier.bias
    assert bias is not None
    np.testing.assert_allclose(
        scores, np.einsum("cd,bdhw->bchw", weight, maps) + bias.detach().numpy()[:, None, None]
    )
    for b in range(2):
        for c in range(3):
            highest = np.sort(scores[b, c].ravel())[-k:]
            expected = scores[b, c].mean() + alpha * highest.mean()
            assert float(head(maps)[b, c].detach()) == pytest.approx(expected)


@pytest.mark.parametrize(("label", "target"), [(1, 1.0), (-1, 0.0)])
def test_saliency_shifts_the_logit(label: int, target: float) -> None:
    """Proposition 1: the gradient at the logit is p_hat - y', p_hat with saliency."""
    torch.manual_seed(0)
    class_maps = torch.randn((1, 1, 3, 3), dtype=torch.float64, requires_grad=True)
    logit = heads.Saliency(2, 1, alpha=0.5, k=2).pool(class_maps)
    logit.retain_grad()
    losses.bce(logit, torch.tensor([[label]])).backward()  # type: ignore[no-untyped-call]
    values = np.sort(class_maps.detach().numpy().ravel())
    shifted = values.mean() + 0.5 * values[-2:].mean()
    assert logit.grad is not None
    assert float(logit.grad) == pytest.approx(1 / (1 + np.exp(-shifted)) - target)


@pytest.mark.parametrize(("alpha", "k"), [(0.5, 5), (0.5, 1), (0.0, 5), (2.0, 50)])
@pytest.mark.parametrize(("label", "target"), [(1, 1.0), (-1, 0.0)])
def test_saliency_has_a_larger_gradient_at_the_highest_positions(
    alpha: float, k: int, label: int, target: float
) -> None:
    """Proposition 2: (p_hat - y') times 1/WH, at the highest positions times 1/WH + alpha/k."""
    torch.manual_seed(0)
    class_maps = torch.randn((1, 1, 6, 7), dtype=torch.float64, requires_grad=True)
    logit = heads.Saliency(2, 1, alpha=alpha, k=k).pool(class_maps)
    losses.bce(logit, torch.tensor([[label]])).backward()  # type: ignore[no-untyped-call]
    k = min(k, 42)
    expected = np.full(42, 1 / 42)
    expected[np.argsort(class_maps.detach().numpy().ravel())[-k:]] += alpha / k
    expected *= float(torch.sigmoid(logit.detach())) - target
    assert class_maps.grad is not None
    np.testing.assert_allclose(class_maps.grad.numpy().ravel(), expected)


def test_heat_maps() -> None:
    maps = torch.tensor([[[[2.0, -1.0], [4.0, 0.0]], [[-3.0, -1.0], [-2.0, -5.0]]]])
    heat = heads.heat_maps(maps)
    torch.testing.assert_close(heat[0, 0], torch.tensor([[0.5, 0.0], [1.0, 0.0]]))
    assert not heat[0, 1].any()


def by_pairs(refiner: heads.GraphRefiner, logits: Tensor) -> Tensor:
    """Messages computed separately for each pair of classes."""
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
            received = []
            for v in range(classes):
                others = [torch.relu(refiner.message(states[u])) for u in range(classes) if u != v]
                received.append(
                    torch.stack(others).mean(0) if others else torch.zeros_like(states[v])
                )
            states = [
                refiner.update(m[None], h[None])[0] for m, h in zip(received, states, strict=True)
            ]
        if refiner.read is None:
            refined.append(torch.stack([x[v] + states[v][v] for v in range(classes)]))
        else:
            read = refiner.read
            refined.append(torch.stack([x[v] + read[v] @ states[v] for v in range(classes)]))
    return torch.stack(refined)


@pytest.mark.parametrize("hidden", [None, 3])
@pytest.mark.parametrize("classes", [1, 2, 6])
def test_the_graph_refiner_equals_a_loop_over_pairs(classes: int, hidden: int | None) -> None:
    torch.manual_seed(0)
    refiner = heads.GraphRefiner(classes, hidden=hidden)
    logits = torch.randn(3, classes, requires_grad=True)
    fast, slow = refiner(logits), by_pairs(refiner, logits)
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-5)
    grads = [torch.autograd.grad(out.square().sum(), logits)[0] for out in (fast, slow)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


def test_without_steps_the_initial_state_is_added() -> None:
    logits = torch.randn(2, 4)
    torch.testing.assert_close(heads.GraphRefiner(4, steps=0)(logits), 2 * logits)
