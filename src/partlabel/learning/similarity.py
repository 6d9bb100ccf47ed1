"""Which few images explain an image, by labels and features at once.

[1] Huynh and Elhamifar, Interactive Multi-Label CNN Learning with Partial Labels, CVPR 2020.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from partlabel.base.numerics import widest

_POSITIVE = (
    1e-6  # share of the product of two lengths from which on a correlation counts as positive
)
_RIDGE = 1e-6  # keeps least squares solvable where two images are the same


class Neighbours(NamedTuple):
    """At most k images for each of B, in the order in which they were chosen.

    Args:
        images: [B, k] their numbers, -1 for none.
        label_coef, feature_coef: [B, k] how much of each is needed, not negative; 0 for none.
    """

    images: Tensor
    label_coef: Tensor
    feature_coef: Tensor


def joint_omp(
    features: Tensor,
    labels: Tensor,
    graph: Tensor,
    k: int = 5,
    lambda_y: float = 1.0,
    lambda_f: float = 0.5,
) -> Neighbours:
    """Which images of a batch explain each other: :func:`pursue` among themselves.

    Args:
        features: [B, D]
        labels: [B, C] completed labels.
        graph: [C, C] A, dense or sparse: A[j, j'] is the weight of label j' for label j.
        k: how many images at most.
        lambda_y, lambda_f: how much labels and features weigh in the choice.
    """
    spread = (graph @ labels.detach().to(graph.dtype).T).T
    oneself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return pursue(labels, features, spread, features, k, lambda_y, lambda_f, oneself)


def pursue(
    labels: Tensor,
    features: Tensor,
    other_labels: Tensor,
    other_features: Tensor,
    k: int = 5,
    lambda_y: float = 1.0,
    lambda_f: float = 0.5,
    barred: Tensor | None = None,
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
        lambda_y, lambda_f: how much labels and features weigh in the choice.
        barred: [B, M] whom an image may not choose: itself.
    """
    sides = [
        _Side(target, others, weight, k)
        for target, others, weight in (
            (labels, other_labels, lambda_y),
            (features, other_features, lambda_f),
        )
    ]
    number, many = len(labels), len(other_labels)
    free = _eligible(sides, number, barred)
    images = torch.zeros(number, 0, dtype=torch.int64, device=labels.device)
    found = torch.zeros(number, 0, dtype=torch.bool, device=labels.device)
    searching = torch.ones(number, dtype=torch.bool, device=labels.device)
    for place in range(min(k, many)):
        left = [side.left() for side in sides]
        gains = [side.gain(rest) for side, rest in zip(sides, left, strict=True)]
        best = _first_best(torch.where(free, gains[0] + gains[1], -torch.inf))
        searching = searching & free.gather(1, best[:, None])[:, 0]
        for side, rest in zip(sides, left, strict=True):
            searching = searching & side.positive(rest, best)
        images = torch.cat([images, torch.where(searching, best, 0)[:, None]], dim=1)
        found = torch.cat([found, searching[:, None]], dim=1)
        free = free.scatter(1, best[:, None], False)
        for side in sides:
            side.choose(place, images[:, -1])
            side.solve(images, found)
    empty = (0, k - images.shape[1])
    index = pad(torch.where(found, images, -1), empty, value=-1)
    label_coef, feature_coef = (pad(side.shares, empty).to(labels.dtype) for side in sides)
    return Neighbours(index, label_coef, feature_coef)


class _Side:
    """One of the two things to explain: products of targets with atoms, and of atoms."""

    def __init__(self, targets: Tensor, atoms: Tensor, weight: float, k: int) -> None:
        same = targets is atoms
        self.atoms = widest(atoms.detach())
        targets = self.atoms if same else widest(targets.detach())
        self.weight = weight
        number, many = len(targets), len(atoms)
        # all products of atoms, unless those with the chosen ones will be fewer
        self.gram = self.atoms @ self.atoms.T if many <= k * number else None
        if self.gram is not None:
            self.squares = self.gram.diagonal()
        else:
            self.squares = self.atoms.square().sum(dim=1)
        own = self.squares if same else targets.square().sum(dim=1)
        self.least = _POSITIVE * torch.outer(own.sqrt(), self.squares.sqrt())
        self.products = self.gram if same and self.gram is not None else targets @ self.atoms.T
        self.shares = self.products.new_zeros(number, 0)
        self.chosen = self.products.new_zeros(number, min(k, many), many)

    def left(self) -> Tensor:
        """[B, M] products of atoms with what the chosen ones leave of the targets."""
        done = self.shares.shape[1]
        explained = torch.bmm(self.shares[:, None], self.chosen[:, :done])
        return self.products - explained[:, 0]

    def choose(self, place: int, images: Tensor) -> None:
        """Add an atom for each target [B]: its products with all atoms."""
        new = self.atoms[images] @ self.atoms.T if self.gram is None else self.gram[images]
        self.chosen[:, place] = new

    def gain(self, left: Tensor) -> Tensor:
        """[B, M] how much an atom explains of that."""
        tiny = torch.finfo(left.dtype).tiny
        return self.weight * left.square() / self.squares.clamp(min=tiny)

    def positive(self, left: Tensor, best: Tensor) -> Tensor:
        """[B] whether the best atom points the same way; always, if this side does not count."""
        at = best[:, None]
        enough: Tensor = (left.gather(1, at) > self.least.gather(1, at))[:, 0]
        return enough | (self.weight == 0)

    def solve(self, images: Tensor, found: Tensor) -> None:
        """Least squares over the chosen atoms, then 0 for what is negative."""
        both = found[:, :, None] & found[:, None, :]
        done = images.shape[1]
        among = self.chosen[:, :done].gather(2, images[:, None, :].expand(-1, done, -1))
        chosen = torch.where(both, among, 0.0)
        # where there is none, 1 on the diagonal and 0 to be reached
        ridge = _RIDGE * (_RIDGE * self.squares.max()).clamp(min=1) if len(self.squares) else _RIDGE
        diagonal = torch.where(found, ridge, 1.0)
        reached = torch.where(found, self.products.gather(1, images), 0.0)
        solved = torch.linalg.solve(chosen + torch.diag_embed(diagonal), reached)
        self.shares = solved.clamp(min=0)


def _eligible(sides: list[_Side], number: int, barred: Tensor | None) -> Tensor:
    """[B, M] who may be chosen: nobody barred, nor an image without labels or features."""
    squares = sides[0].squares
    free = torch.ones(number, len(squares), dtype=torch.bool, device=squares.device)
    if barred is not None:
        free &= ~barred
    for side in sides:
        free &= (side.squares > 0) | (side.weight == 0)
    return free


def _first_best(values: Tensor) -> Tensor:
    """[B, M] to [B]: the first of the largest, which ``argmax`` does not promise."""
    numbers = torch.arange(values.shape[1], device=values.device)
    largest = values == values.amax(dim=1, keepdim=True)
    return torch.where(largest, numbers, values.shape[1] - 1).amin(dim=1)
