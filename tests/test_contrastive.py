"""The contrastive loss equals a double loop over all pairs."""

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
    """Both forms of the loss, computed for each pair in double precision."""
    partners = np.concatenate([now, past])
    partner_classes = np.concatenate([classes, past_classes])
    total_cost = 0.0
    for k in range(len(now)):
        similarity = {t: float(now[k] @ partners[t]) / tau for t in range(len(partners)) if t != k}
        same = [t for t in similarity if partner_classes[t] == classes[k]]
        compared = [
            t for t in similarity if denominator == "all" or partner_classes[t] != classes[k]
        ]
        if not same or not compared:
            continue
        log_sum = math.log(sum(math.exp(similarity[t]) for t in compared))
        terms = [log_sum - similarity[t] for t in same]
        total_cost += sum(terms) / (len(terms) if denominator == "all" else 1)
    return total_cost / (len(now) if denominator == "all" else total)


def unit_vectors(rng: np.random.Generator, number: int) -> Any:
    vectors = rng.normal(size=(number, D))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    now=st.integers(1, 12),
    past=st.integers(0, 9),
    number=st.integers(1, 5),
    denominator=st.sampled_from(["all", "inter"]),
    tau=st.sampled_from([0.1, 0.5, 2.0]),
)
def test_equals_a_double_loop(
    seed: int, now: int, past: int, number: int, denominator: Any, tau: float
) -> None:
    rng = np.random.default_rng(seed)
    embeddings, earlier = unit_vectors(rng, now), unit_vectors(rng, past)
    classes, past_classes = rng.integers(0, number, now), rng.integers(0, number, past)
    now_tensors = torch.from_numpy(embeddings), torch.from_numpy(classes)
    past_tensors = torch.from_numpy(earlier), torch.from_numpy(past_classes)
    loss = losses.lac(*now_tensors, *past_tensors, tau, denominator, total=37)
    expected = by_hand(embeddings, classes, earlier, past_classes, tau, denominator, 37)
    assert float(loss) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("denominator", ["all", "inter"])
def test_only_current_embeddings_get_a_gradient(denominator: Any) -> None:
    rng = np.random.default_rng(3)
    now = torch.from_numpy(unit_vectors(rng, 7)).requires_grad_()
    past = torch.from_numpy(unit_vectors(rng, 4)).requires_grad_()
    classes, past_classes = torch.tensor([0, 0, 1, 1, 2, 0, 3]), torch.tensor([0, 1, 1, 4])

    def cost(embeddings: torch.Tensor) -> torch.Tensor:
        return losses.lac(embeddings, classes, past, past_classes, 0.5, denominator)

    assert torch.autograd.gradcheck(cost, (now,))
    cost(now).backward()  # type: ignore[no-untyped-call]
    assert past.grad is None


@pytest.mark.parametrize("denominator", ["all", "inter"])
@pytest.mark.parametrize(
    "classes", [[], [2], [0, 1, 2], [1, 1]], ids=["none", "one", "all different", "one class"]
)
def test_batches_with_nothing_to_contrast_cost_0(classes: list[int], denominator: Any) -> None:
    rng = np.random.default_rng(1)
    now = torch.from_numpy(unit_vectors(rng, len(classes))).requires_grad_()
    none = torch.empty(0, D, dtype=torch.float64), torch.empty(0, dtype=torch.int64)
    now_classes = torch.tensor(classes, dtype=torch.int64)
    cost = losses.lac(now, now_classes, *none, 0.5, denominator)
    cost.backward()  # type: ignore[no-untyped-call]
    assert now.grad is not None
    assert bool(torch.isfinite(now.grad).all())
    # with a single partner, of the same class, the cost is log(e^s) - s = 0
    assert float(cost.detach()) == pytest.approx(0.0, abs=1e-12)


def test_training_groups_embeddings_by_class() -> None:
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
    similarity = (now @ now.T).detach()
    assert float(similarity[same].min()) > 0.9
    assert float(similarity[classes[:, None] != classes].max()) < 0.1
