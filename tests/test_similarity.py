"""joint_omp equals a plain implementation of Algorithm 2 that handles one image at a time."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from partlabel.learning.similarity import Neighbours, joint_omp, pursue


def by_hand(
    y: Any, f: Any, atoms_y: Any, atoms_f: Any, k: int, weights: tuple[float, float], own: int
) -> list[tuple[int, float, float]]:
    """The neighbours of one image, each with both coefficients."""
    chosen: list[int] = []
    coefficients = [np.zeros(0), np.zeros(0)]
    sides = [(y, atoms_y, weights[0]), (f, atoms_f, weights[1])]
    for _ in range(k):
        residuals = [
            target - coefficient @ atoms[chosen]
            for (target, atoms, _), coefficient in zip(sides, coefficients, strict=True)
        ]
        best, best_score = -1, -1.0
        for s in range(len(atoms_y)):
            norms = [float(atoms[s] @ atoms[s]) for _, atoms, _ in sides]
            counted = [norm for norm, (_, _, weight) in zip(norms, sides, strict=True) if weight]
            if s == own or s in chosen or min(counted, default=1) == 0:
                continue
            score = sum(
                weight * float(r @ atoms[s]) ** 2 / norm
                for (_, atoms, weight), r, norm in zip(sides, residuals, norms, strict=True)
                if weight
            )
            if score > best_score + 1e-12 * abs(best_score):
                best, best_score = s, score
        if best < 0:
            break
        if any(
            float(r @ atoms[best]) <= 1e-6 * np.linalg.norm(target) * np.linalg.norm(atoms[best])
            for (target, atoms, weight), r in zip(sides, residuals, strict=True)
            if weight
        ):
            break
        chosen.append(best)
        coefficients = []
        for target, atoms, _ in sides:
            base = atoms[chosen]
            solved = np.linalg.solve(base @ base.T + 1e-6 * np.eye(len(chosen)), base @ target)
            coefficients.append(np.maximum(solved, 0))
    return list(zip(chosen, *coefficients, strict=True))


def neighbours_of(row: int, result: Neighbours) -> list[tuple[int, float, float]]:
    valid = result.images[row] >= 0
    return list(zip(*(column[row][valid].tolist() for column in result), strict=True))


def compare(y: Any, f: Any, k: int, weights: tuple[float, float], graph: Any = None) -> Neighbours:
    graph = np.eye(y.shape[1]) if graph is None else graph
    result = joint_omp(
        torch.from_numpy(f), torch.from_numpy(y), torch.from_numpy(graph), k, *weights
    )
    for row in range(len(y)):
        expected = by_hand(y[row], f[row], y @ graph.T, f, k, weights, row)
        neighbours = neighbours_of(row, result)
        assert [n[0] for n in neighbours] == [n[0] for n in expected]
        np.testing.assert_allclose(
            [n[1:] for n in neighbours], [n[1:] for n in expected], rtol=1e-6, atol=1e-8
        )
    return result


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    images=st.integers(1, 9),
    k=st.integers(1, 12),
    weights=st.sampled_from([(1.0, 0.5), (2.0, 0.0), (0.0, 1.0), (0.5, 0.5)]),
    zeros=st.booleans(),
    linked=st.booleans(),
)
def test_equals_algorithm_2(
    seed: int, images: int, k: int, weights: tuple[float, float], zeros: bool, linked: bool
) -> None:
    rng = np.random.default_rng(seed)
    y, f = rng.normal(size=(images, 4)) + 0.3, np.abs(rng.normal(size=(images, 6)))
    if zeros:
        y[rng.integers(images)] = 0
        f[rng.integers(images)] = 0
    compare(y, f, k, weights, np.abs(rng.normal(size=(4, 4))) if linked else None)


def test_a_sparse_graph() -> None:
    rng = np.random.default_rng(0)
    y, f = torch.from_numpy(rng.normal(size=(6, 4))), torch.from_numpy(rng.normal(size=(6, 5)) + 1)
    graph = torch.rand(4, 4, dtype=torch.float64) * (torch.rand(4, 4) < 0.5)
    for dense, sparse in zip(
        joint_omp(f, y, graph), joint_omp(f, y, graph.to_sparse()), strict=True
    ):
        torch.testing.assert_close(dense, sparse)


def test_neighbours_from_other_images() -> None:
    rng = np.random.default_rng(0)
    y, f = rng.normal(size=(5, 4)), np.abs(rng.normal(size=(5, 6)))
    others_y, others_f = rng.normal(size=(8, 4)), np.abs(rng.normal(size=(8, 6)))
    targets = torch.from_numpy(y), torch.from_numpy(f)
    others = torch.from_numpy(others_y), torch.from_numpy(others_f)
    result = pursue(*targets, *others, 3, 1.0, 0.5)
    for row in range(5):
        expected = by_hand(y[row], f[row], others_y, others_f, 3, (1.0, 0.5), -1)
        assert [n[0] for n in neighbours_of(row, result)] == [n[0] for n in expected]


def test_images_that_occur_twice() -> None:
    rng = np.random.default_rng(0)
    y, f = rng.normal(size=(6, 4)) + 0.5, np.abs(rng.normal(size=(6, 5)))
    y[3:], f[3:] = y[:3], f[:3]
    result = joint_omp(torch.from_numpy(f), torch.from_numpy(y), torch.eye(4).double(), 4)
    assert result.images[:, 0].tolist() == [3, 4, 5, 0, 1, 2]  # the copy of each image
    for coefficients in (result.label_coef, result.feature_coef):
        assert bool(torch.isfinite(coefficients).all())
        assert bool((coefficients >= 0).all())
        np.testing.assert_allclose(coefficients[:, 0].numpy(), 1, rtol=1e-3)


def test_the_order_of_images_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    y, f = rng.normal(size=(7, 4)) + 0.3, np.abs(rng.normal(size=(7, 5)))
    ordered = compare(y, f, 3, (1.0, 0.5))
    order = rng.permutation(7)
    shuffled = compare(y[order], f[order], 3, (1.0, 0.5))
    for position, row in enumerate(order):
        neighbours = [int(order[n[0]]) for n in neighbours_of(position, shuffled)]
        assert neighbours == [n[0] for n in neighbours_of(int(row), ordered)]


def test_ties_go_to_the_first() -> None:
    y, f = torch.ones(4, 2), torch.ones(4, 3)
    result = joint_omp(f, y, torch.eye(2), 1)
    assert result.images[:, 0].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("images", [1, 2])
def test_tiny_batches(images: int) -> None:
    y, f = torch.ones(images, 2), torch.ones(images, 3)
    result = joint_omp(f, y, torch.eye(2))
    assert (result.images >= 0).sum(dim=1).tolist() == [images - 1] * images
    assert result.images.shape == (images, 5)
    no_candidates = torch.zeros(0, 2), torch.zeros(0, 3)
    assert pursue(y, f, *no_candidates, 3).images.tolist() == [[-1] * 3] * images


def test_half_precision_and_gradients() -> None:
    y = torch.rand(4, 3, dtype=torch.bfloat16, requires_grad=True)
    f = torch.rand(4, 5, dtype=torch.bfloat16)
    result = joint_omp(f, y, torch.eye(3), 2)
    assert result.label_coef.dtype == torch.bfloat16
    assert not result.label_coef.requires_grad


def test_large_features_that_occur_twice() -> None:
    f, y = torch.full((4, 3), 1e6), torch.rand(4, 2)
    result = joint_omp(f, y, torch.eye(2), 3, lambda_f=0)
    assert bool(torch.isfinite(result.feature_coef).all())
