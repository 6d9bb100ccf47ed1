"""lac against a double loop over all pairs."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from partlabel.learning import losses

D = 6


def by_hand(
    now: Any, classes: Any, past: Any, past_classes: Any, tau: float, denominator: str, total: int
) -> float:
    """Both forms, pair by pair, in double precision."""
    everyone = np.concatenate([now, past])
    kinds = np.concatenate([classes, past_classes])
    sum_of_anchors = 0.0
    for k in range(len(now)):
        similar = {t: float(now[k] @ everyone[t]) / tau for t in range(len(everyone)) if t != k}
        friends = [t for t in similar if kinds[t] == classes[k]]
        compared = [t for t in similar if denominator == "all" or kinds[t] != classes[k]]
        if not friends or not compared:
            continue
        below = math.log(sum(math.exp(similar[t]) for t in compared))
        terms = [below - similar[t] for t in friends]
        sum_of_anchors += sum(terms) / (len(terms) if denominator == "all" else 1)
    return sum_of_anchors / (len(now) if denominator == "all" else total)


def unit(rng: np.random.Generator, number: int) -> Any:
    made = rng.normal(size=(number, D))
    return made / np.linalg.norm(made, axis=1, keepdims=True)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    now=st.integers(1, 12),
    past=st.integers(0, 9),
    kinds=st.integers(1, 5),
    denominator=st.sampled_from(["all", "inter"]),
    tau=st.sampled_from([0.1, 0.5, 2.0]),
)
def test_equals_a_double_loop(
    seed: int, now: int, past: int, kinds: int, denominator: Any, tau: float
) -> None:
    rng = np.random.default_rng(seed)
    embeddings, earlier = unit(rng, now), unit(rng, past)
    classes, their = rng.integers(0, kinds, now), rng.integers(0, kinds, past)
    known = torch.from_numpy(embeddings), torch.from_numpy(classes)
    past_known = torch.from_numpy(earlier), torch.from_numpy(their)
    found = losses.lac(*known, *past_known, tau, denominator, total=37)
    expected = by_hand(embeddings, classes, earlier, their, tau, denominator, 37)
    assert float(found) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("denominator", ["all", "inter"])
def test_gradients_are_right_and_reach_current_embeddings_alone(denominator: Any) -> None:
    rng = np.random.default_rng(3)
    now = torch.from_numpy(unit(rng, 7)).requires_grad_()
    past = torch.from_numpy(unit(rng, 4)).requires_grad_()
    classes, their = torch.tensor([0, 0, 1, 1, 2, 0, 3]), torch.tensor([0, 1, 1, 4])

    def cost(embeddings: torch.Tensor) -> torch.Tensor:
        return losses.lac(embeddings, classes, past, their, 0.5, denominator)

    assert torch.autograd.gradcheck(cost, (now,))
    cost(now).backward()  # type: ignore[no-untyped-call]
    assert past.grad is None


@pytest.mark.parametrize("denominator", ["all", "inter"])
@pytest.mark.parametrize(
    "classes", [[], [2], [0, 1, 2], [1, 1]], ids=["none", "one", "each alone", "one class"]
)
def test_odd_choices_cost_nothing_or_something_finite(classes: list[int], denominator: Any) -> None:
    rng = np.random.default_rng(1)
    now = torch.from_numpy(unit(rng, len(classes))).requires_grad_()
    none = torch.empty(0, D, dtype=torch.float64), torch.empty(0, dtype=torch.int64)
    kinds = torch.tensor(classes, dtype=torch.int64)
    cost = losses.lac(now, kinds, *none, 0.5, denominator)
    cost.backward()  # type: ignore[no-untyped-call]
    assert now.grad is not None
    assert bool(torch.isfinite(now.grad).all())
    # alone with a friend, there is nothing to be told apart from: log(e^s) - s
    assert float(cost.detach()) == pytest.approx(0.0, abs=1e-12)


def test_pulls_classes_together() -> None:
    torch.manual_seed(0)
    free = torch.randn(12, D).requires_grad_()
    classes = torch.arange(12) % 3
    none = torch.empty(0, D), torch.empty(0, dtype=torch.int64)
    optimizer = torch.optim.Adam([free], lr=0.1)
    for _ in range(100):
        now = torch.nn.functional.normalize(free, dim=1)
        cost = losses.lac(now, classes, *none)
        optimizer.zero_grad()
        cost.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    same = (classes[:, None] == classes) & ~torch.eye(12, dtype=torch.bool)
    similar = (now @ now.T).detach()
    assert float(similar[same].min()) > 0.9
    assert float(similar[classes[:, None] != classes].max()) < 0.1
