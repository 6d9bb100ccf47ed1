"""Which few images explain an image, by labels and features at once.

[1] Huynh and Elhamifar, Interactive Multi-Label CNN Learning with Partial Labels, CVPR 2020.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_POSITIVE = (
    1e-6  # share of the product of two lengths from which on a correlation counts as positive
)
_RIDGE = 1e-6  # keeps least squares solvable where two images are the same


class Neighbours(NamedTuple):
    """At most k images for each of B: where ``found`` is false, all else is 0.

    Args:
        images: [B, k] their numbers, in the order in which they were chosen.
        found: [B, k]
        by_labels, by_features: [B, k] how much of each is needed, not negative.
    """

    images: Tensor
    found: Tensor
    by_labels: Tensor
    by_features: Tensor


def joint_omp(
    labels: Tensor,
    features: Tensor,
    other_labels: Tensor,
    other_features: Tensor,
    k: int = 5,
    weight_labels: float = 1.0,
    weight_features: float = 0.5,
    own: Tensor | None = None,
) -> Neighbours:
    """Joint non-negative orthogonal matching pursuit, for all images at once (Algorithm 2 of [1]).

    An image's labels and features are both written as sums of those of the same few others. One
    after another the image is chosen that explains most of what is left of both; the search of an
    image ends if that one's correlation with either is not positive. After each choice both sets of
    coefficients are least squares, and what is negative becomes 0. A side of weight 0 neither
    chooses nor ends. Of equally good images the first is chosen, and one without labels or features
    (all 0) never.

    All that is needed are products between images: apart from these the cost does not depend on
    the number of classes or features.

    Args:
        labels: [B, C] completed labels.
        features: [B, D]
        other_labels: [M, C] labels of the images to choose from, spread over the label graph.
        other_features: [M, D]
        k: how many images at most.
        weight_labels, weight_features: lambda_y and lambda_f.
        own: [B] which of the M an image is itself, -1 for none; nobody explains themselves.
    """
    sides = [
        _Side(target, others, weight)
        for target, others, weight in (
            (labels, other_labels, weight_labels),
            (features, other_features, weight_features),
        )
    ]
    number, many = len(labels), len(other_labels)
    free = _eligible(sides, number, own)
    images = torch.zeros(number, 0, dtype=torch.int64, device=labels.device)
    found = torch.zeros(number, 0, dtype=torch.bool, device=labels.device)
    searching = torch.ones(number, dtype=torch.bool, device=labels.device)
    for _ in range(min(k, many)):
        left = [side.left(images) for side in sides]
        gains = [side.gain(rest) for side, rest in zip(sides, left, strict=True)]
        best = _first_best(torch.where(free, gains[0] + gains[1], -torch.inf))
        searching = searching & free.gather(1, best[:, None])[:, 0]
        for side, rest in zip(sides, left, strict=True):
            searching = searching & side.positive(rest, best)
        images = torch.cat([images, torch.where(searching, best, 0)[:, None]], dim=1)
        found = torch.cat([found, searching[:, None]], dim=1)
        free = free.scatter(1, best[:, None], False)
        for side in sides:
            side.solve(images, found)
    missing = k - images.shape[1]
    pad = [torch.nn.functional.pad(x, (0, missing)) for x in (images, found)]
    shares = [torch.nn.functional.pad(side.shares, (0, missing)).to(labels.dtype) for side in sides]
    return Neighbours(pad[0], pad[1], shares[0], shares[1])


class _Side:
    """One of the two things to explain: products of targets with atoms, and of atoms."""

    def __init__(self, targets: Tensor, atoms: Tensor, weight: float) -> None:
        targets, atoms = targets.detach().double(), atoms.detach().double()
        self.weight = weight
        self.products = targets @ atoms.T
        self.gram = atoms @ atoms.T
        self.squares = self.gram.diagonal()
        self.least = _POSITIVE * torch.outer(targets.norm(dim=1), atoms.norm(dim=1))
        self.shares = self.products.new_zeros(len(targets), 0)

    def left(self, images: Tensor) -> Tensor:
        """[B, M] products of atoms with what the chosen ones leave of the targets."""
        return self.products - torch.einsum("bt,btm->bm", self.shares, self.gram[images])

    def gain(self, left: Tensor) -> Tensor:
        """[B, M] how much an atom explains of that."""
        tiny = torch.finfo(left.dtype).tiny
        return self.weight * left.square() / self.squares.clamp(min=tiny)

    def positive(self, left: Tensor, best: Tensor) -> Tensor:
        """[B] whether the best atom points the same way; always, if this side does not count."""
        at = best[:, None]
        enough = (left.gather(1, at) > self.least.gather(1, at))[:, 0]
        return enough | (self.weight == 0)

    def solve(self, images: Tensor, found: Tensor) -> None:
        """Least squares over the chosen atoms, then 0 for what is negative."""
        both = found[:, :, None] & found[:, None, :]
        chosen = torch.where(both, self.gram[images[:, :, None], images[:, None, :]], 0.0)
        # where there is none, 1 on the diagonal and 0 to be reached
        diagonal = torch.where(found, _RIDGE, 1.0)
        reached = torch.where(found, self.products.gather(1, images), 0.0)
        solved = torch.linalg.solve(chosen + torch.diag_embed(diagonal), reached)
        self.shares = solved.clamp(min=0)


def _eligible(sides: list[_Side], number: int, own: Tensor | None) -> Tensor:
    """[B, M] who may be chosen: not oneself, nor an image without labels or features."""
    squares = sides[0].squares
    free = torch.ones(number, len(squares), dtype=torch.bool, device=squares.device)
    if own is not None:
        free &= torch.arange(len(squares), device=own.device) != own[:, None]
    for side in sides:
        free &= (side.squares > 0) | (side.weight == 0)
    return free


def _first_best(values: Tensor) -> Tensor:
    """[B, M] to [B]: the first of the largest, which ``argmax`` does not promise."""
    numbers = torch.arange(values.shape[1], device=values.device)
    largest = values == values.amax(dim=1, keepdim=True)
    return torch.where(largest, numbers, values.shape[1] - 1).amin(dim=1)
