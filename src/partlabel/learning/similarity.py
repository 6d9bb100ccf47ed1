"""Find the few images whose labels and features together explain those of an image.

[1] Huynh and Elhamifar, Interactive Multi-Label CNN Learning with Partial Labels, CVPR 2020.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from partlabel.base.numerics import widest

_POSITIVE = 1e-6  # positive correlations are above this, relative to the lengths of target and atom
_RIDGE = 1e-6  # keeps least squares solvable if two images are the same


class Neighbours(NamedTuple):
    """At most k similar images for each of B images, in the order in which they were chosen.

    Args:
        images: [B, k] index of each similar image, -1 for none.
        label_coef, feature_coef: [B, k] coefficients of their labels and features; not negative, 0
            for none.
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
    """Explain each image of a batch by other images of the batch; see :func:`pursue`.

    Args:
        features: [B, D]
        labels: [B, C] completed labels.
        graph: [C, C] A, dense or sparse: A[j, j'] is the weight of label j' for label j.
        k: largest number of similar images.
        lambda_y, lambda_f: weights of labels and features in the choice.
    """
    spread = (graph @ labels.detach().to(graph.dtype).T).T
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return pursue(labels, features, spread, features, k, lambda_y, lambda_f, itself)


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

    The labels and the features of an image are both written as sums of those of the same few other
    images. In each step the image is chosen that explains most of the two residuals. The search
    ends if its correlation with one of the residuals is not positive. After each choice both sets
    of coefficients are computed by least squares, and negative coefficients are set to 0.

    If one of the two weights is 0, its residual neither affects the choice nor ends the search.
    Ties go to the image that comes first. An image whose labels or features are all 0 is never
    chosen.

    The algorithm uses only products between images. Apart from these, its cost does not depend on
    the number of classes or features.

    Args:
        labels: [B, C] completed labels.
        features: [B, D]
        other_labels: [M, C] labels of the images to choose from, spread over the label graph.
        other_features: [M, D]
        k: largest number of similar images.
        lambda_y, lambda_f: weights of labels and features in the choice.
        barred: [B, M] which images must not be chosen, such as the image itself.
    """
    sides = [
        _Side(target, others, weight, k)
        for target, others, weight in (
            (labels, other_labels, lambda_y),
            (features, other_features, lambda_f),
        )
    ]
    number, candidates = len(labels), len(other_labels)
    eligible = _eligible(sides, number, barred)
    images = torch.zeros(number, 0, dtype=torch.int64, device=labels.device)
    valid = torch.zeros(number, 0, dtype=torch.bool, device=labels.device)
    searching = torch.ones(number, dtype=torch.bool, device=labels.device)
    for step in range(min(k, candidates)):
        residuals = [side.residual() for side in sides]
        gains = [side.gain(residual) for side, residual in zip(sides, residuals, strict=True)]
        best = _first_best(torch.where(eligible, gains[0] + gains[1], -torch.inf))
        searching = searching & eligible.gather(1, best[:, None])[:, 0]
        for side, residual in zip(sides, residuals, strict=True):
            searching = searching & side.positive(residual, best)
        images = torch.cat([images, torch.where(searching, best, 0)[:, None]], dim=1)
        valid = torch.cat([valid, searching[:, None]], dim=1)
        eligible = eligible.scatter(1, best[:, None], False)
        for side in sides:
            side.choose(step, images[:, -1])
            side.solve(images, valid)
    padding = (0, k - images.shape[1])
    index = pad(torch.where(valid, images, -1), padding, value=-1)
    label_coef, feature_coef = (pad(side.coefficients, padding).to(labels.dtype) for side in sides)
    return Neighbours(index, label_coef, feature_coef)


class _Side:
    """The state of the search for labels or for features.

    Args:
        targets: [B, n] labels or features to explain.
        atoms: [M, n] labels or features to explain them with.
        weight: weight in the choice.
        k: largest number of atoms per target.
    """

    def __init__(self, targets: Tensor, atoms: Tensor, weight: float, k: int) -> None:
        same = targets is atoms
        self.atoms = widest(atoms.detach())
        targets = self.atoms if same else widest(targets.detach())
        self.weight = weight
        number, candidates = len(targets), len(atoms)
        # compute all products of atoms now, unless the products with chosen atoms will be fewer
        self.gram = self.atoms @ self.atoms.T if candidates <= k * number else None
        if self.gram is not None:
            self.squares = self.gram.diagonal()
        else:
            self.squares = self.atoms.square().sum(dim=1)
        own = self.squares if same else targets.square().sum(dim=1)
        self.least = _POSITIVE * torch.outer(own.sqrt(), self.squares.sqrt())
        self.products = self.gram if same and self.gram is not None else targets @ self.atoms.T
        self.coefficients = self.products.new_zeros(number, 0)
        # products of the chosen atoms with all atoms
        self.chosen = self.products.new_zeros(number, min(k, candidates), candidates)

    def residual(self) -> Tensor:
        """Products [B, M] of all atoms with the residuals of the targets."""
        done = self.coefficients.shape[1]
        explained = torch.bmm(self.coefficients[:, None], self.chosen[:, :done])
        return self.products - explained[:, 0]

    def choose(self, step: int, images: Tensor) -> None:
        """Store the products of the atoms chosen in a step.

        Args:
            step: index of the step.
            images: [B] the atom chosen for each target.
        """
        new = self.atoms[images] @ self.atoms.T if self.gram is None else self.gram[images]
        self.chosen[:, step] = new

    def gain(self, residual: Tensor) -> Tensor:
        """How much of the residual each atom explains [B, M], times the weight.

        Args:
            residual: [B, M] see :meth:`residual`.
        """
        tiny = torch.finfo(residual.dtype).tiny
        return self.weight * residual.square() / self.squares.clamp(min=tiny)

    def positive(self, residual: Tensor, best: Tensor) -> Tensor:
        """Whether the correlation with the best atom is positive [B]; always True for weight 0.

        Args:
            residual: [B, M] see :meth:`residual`.
            best: [B] the best atom of each target.
        """
        index = best[:, None]
        enough: Tensor = (residual.gather(1, index) > self.least.gather(1, index))[:, 0]
        return enough | (self.weight == 0)

    def solve(self, images: Tensor, valid: Tensor) -> None:
        """Compute the coefficients by least squares, and set negative ones to 0.

        Args:
            images: [B, s] the atoms chosen in all steps so far.
            valid: [B, s] whether the search had not ended when an atom was chosen.
        """
        both = valid[:, :, None] & valid[:, None, :]
        done = images.shape[1]
        products = self.chosen[:, :done].gather(2, images[:, None, :].expand(-1, done, -1))
        matrix = torch.where(both, products, 0.0)
        # an entry that is not valid gets the equation 1 * coefficient = 0
        ridge = _RIDGE * (_RIDGE * self.squares.max()).clamp(min=1) if len(self.squares) else _RIDGE
        diagonal = torch.where(valid, ridge, 1.0)
        right_side = torch.where(valid, self.products.gather(1, images), 0.0)
        solution = torch.linalg.solve(matrix + torch.diag_embed(diagonal), right_side)
        self.coefficients = solution.clamp(min=0)


def _eligible(sides: list[_Side], number: int, barred: Tensor | None) -> Tensor:
    """Which images may be chosen [B, M]: neither barred nor without labels or features."""
    squares = sides[0].squares
    eligible = torch.ones(number, len(squares), dtype=torch.bool, device=squares.device)
    if barred is not None:
        eligible &= ~barred
    for side in sides:
        eligible &= (side.squares > 0) | (side.weight == 0)
    return eligible


def _first_best(values: Tensor) -> Tensor:
    """The index [B] of the first largest value of each row [B, M]; ``argmax`` may return any."""
    index = torch.arange(values.shape[1], device=values.device)
    largest = values == values.amax(dim=1, keepdim=True)
    return torch.where(largest, index, values.shape[1] - 1).amin(dim=1)
