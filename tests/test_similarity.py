"""joint_omp against Algorithm 2 written out for one image after another."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from partlabel.similarity import Neighbours, joint_omp


def by_hand(
    y: Any, f: Any, atoms_y: Any, atoms_f: Any, k: int, weights: tuple[float, float], own: int
) -> list[tuple[int, float, float]]:
    """The neighbours of one image with both coefficients."""
    chosen: list[int] = []
    coefficients = [np.zeros(0), np.zeros(0)]
    sides = [(y, atoms_y, weights[0]), (f, atoms_f, weights[1])]
    for _ in range(k):
        rest = [
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
                for (_, atoms, weight), r, norm in zip(sides, rest, norms, strict=True)
                if weight
            )
            if score > best_score + 1e-12 * abs(best_score):
                best, best_score = s, score
        if best < 0:
            break
        if any(
            float(r @ atoms[best]) <= 1e-6 * np.linalg.norm(target) * np.linalg.norm(atoms[best])
            for (target, atoms, weight), r in zip(sides, rest, strict=True)
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


def read(found: Neighbours, row: int) -> list[tuple[int, float, float]]:
    kept = found.found[row]
    columns = (found.images[row][kept], found.by_labels[row][kept], found.by_features[row][kept])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def compare(y: Any, f: Any, k: int, weights: tuple[float, float]) -> Neighbours:
    """In a batch, labels spread over no graph."""
    own = torch.arange(len(y))
    tensors = torch.from_numpy(y), torch.from_numpy(f)
    found = joint_omp(*tensors, *tensors, k, *weights, own=own)
    for row in range(len(y)):
        expected = by_hand(y[row], f[row], y, f, k, weights, row)
        got = read(found, row)
        assert [one[0] for one in got] == [one[0] for one in expected]
        np.testing.assert_allclose(
            [one[1:] for one in got], [one[1:] for one in expected], rtol=1e-6, atol=1e-8
        )
    return found


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    images=st.integers(1, 9),
    k=st.integers(1, 12),
    weights=st.sampled_from([(1.0, 0.5), (2.0, 0.0), (0.0, 1.0), (0.5, 0.5)]),
    zeros=st.booleans(),
)
def test_equals_one_image_after_another(
    seed: int, images: int, k: int, weights: tuple[float, float], zeros: bool
) -> None:
    rng = np.random.default_rng(seed)
    y, f = rng.normal(size=(images, 4)) + 0.3, np.abs(rng.normal(size=(images, 6)))
    if zeros:
        y[rng.integers(images)] = 0
        f[rng.integers(images)] = 0
    compare(y, f, k, weights)


def test_neighbours_from_elsewhere() -> None:
    rng = np.random.default_rng(0)
    y, f = rng.normal(size=(5, 4)), np.abs(rng.normal(size=(5, 6)))
    others_y, others_f = rng.normal(size=(8, 4)), np.abs(rng.normal(size=(8, 6)))
    shown = torch.from_numpy(y), torch.from_numpy(f)
    others = torch.from_numpy(others_y), torch.from_numpy(others_f)
    found = joint_omp(*shown, *others, 3, 1.0, 0.5)
    for row in range(5):
        expected = by_hand(y[row], f[row], others_y, others_f, 3, (1.0, 0.5), -1)
        assert [one[0] for one in read(found, row)] == [one[0] for one in expected]


def test_the_same_image_twice() -> None:
    rng = np.random.default_rng(0)
    y, f = rng.normal(size=(6, 4)) + 0.5, np.abs(rng.normal(size=(6, 5)))
    y[3:], f[3:] = y[:3], f[:3]
    tensors = torch.from_numpy(y), torch.from_numpy(f)
    found = joint_omp(*tensors, *tensors, 4, own=torch.arange(6))
    assert found.images[:, 0].tolist() == [3, 4, 5, 0, 1, 2]  # oneself under another number
    for part in (found.by_labels, found.by_features):
        assert bool(torch.isfinite(part).all())
        assert bool((part >= 0).all())
        np.testing.assert_allclose(part[:, 0].numpy(), 1, rtol=1e-3)


def test_the_order_of_images_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    y, f = rng.normal(size=(7, 4)) + 0.3, np.abs(rng.normal(size=(7, 5)))
    straight = compare(y, f, 3, (1.0, 0.5))
    order = rng.permutation(7)
    mixed = compare(y[order], f[order], 3, (1.0, 0.5))
    for place, row in enumerate(order):
        there = [(int(order[s]), cy, cf) for s, cy, cf in read(mixed, place)]
        assert [one[0] for one in there] == [one[0] for one in read(straight, int(row))]


def test_ties_go_to_the_first() -> None:
    y, f = torch.ones(4, 2), torch.ones(4, 3)
    found = joint_omp(y, f, y, f, 1, own=torch.arange(4))
    assert found.images[:, 0].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("images", [1, 2])
def test_tiny_batches(images: int) -> None:
    y, f = torch.ones(images, 2), torch.ones(images, 3)
    found = joint_omp(y, f, y, f, 5, own=torch.arange(images))
    assert found.found.sum(dim=1).tolist() == [images - 1] * images
    assert found.images.shape == (images, 5)
    empty = torch.zeros(0, 2), torch.zeros(0, 3)
    nobody = joint_omp(y, f, *empty, 3)
    assert not bool(nobody.found.any())


def test_half_precision_and_gradients() -> None:
    y = torch.rand(4, 3, dtype=torch.bfloat16, requires_grad=True)
    f = torch.rand(4, 5, dtype=torch.bfloat16)
    found = joint_omp(y, f, y, f, 2, own=torch.arange(4))
    assert found.by_labels.dtype == torch.bfloat16
    assert not found.by_labels.requires_grad
