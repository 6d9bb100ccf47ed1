"""Single labels, or all labels of an image: whichever tells more for the same work.

Mixtures from labels only to images only are compared by what all their answers tell together. The
information I about a class is that of the posterior of its head, in nats: half the log-determinant
of the covariance that the answers take away. A mixture is worth the sum over classes of w log(1 +
I), with the weights w by which labels are allotted to classes: if the information about a class
grows in proportion to its labels, this sum is largest for about that allotment.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.judging.suggestion.allotment import allot, rarity
from partlabel.judging.suggestion.asking import Askable, Picked, whole_images
from partlabel.judging.suggestion.information import (
    FeaturesOf,
    information_weights,
    most_informative,
    posterior_of,
)
from partlabel.judging.suggestion.orderings import ClassCells
from partlabel.judging.suggestion.posterior import Posterior

_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the work that goes into images

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Mixture(NamedTuple):
    """What to ask: cells, and images [m] with all their unknown labels.

    Gains are in nats per cell that could be asked instead, classes weighted.
    """

    cells: Picked
    images: Integers
    gains: Floats


def best_mixture(askable: Askable, features: FeaturesOf, budget: int, price: float) -> Mixture:
    """The cells and images that tell most, for the work that a number of cells takes.

    Args:
        askable: what can be asked about.
        features: gives the features of images.
        budget: the work, in cells.
        price: of an image, in cells.
    """
    most = min(int(budget / price), int(askable.open_images.sum()))
    order, gains = np.zeros(0, dtype=np.int64), np.zeros(0)
    if most:
        order, gains = whole_images(askable, features, most)
    found: list[tuple[float, Mixture]] = []
    for number in sorted({int(share * len(order)) for share in _SHARES}):
        rest = max(budget - int(np.ceil(number * price)), 0)
        cells, told = _with_images(askable, features, order[:number], rest)
        found.append((told, Mixture(cells, order[:number], gains[:number] / price)))
    return max(found, key=lambda pair: pair[0])[1]


def _with_images(
    askable: Askable, features: FeaturesOf, images: Integers, budget: int
) -> tuple[Picked, float]:
    """The cells to ask for besides images, and what all answers together tell."""
    weights = rarity(askable.present)
    weights = weights / weights.mean()
    available = askable.unknown_besides(images)
    numbers = allot(min(budget, int(available.sum())), weights, available)
    parts = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))]
    told = 0.0
    for column in np.flatnonzero(askable.unknown).tolist():
        cells = askable.cells_of(column)
        inside = np.isin(cells.rows, images)
        before = posterior_of(askable.known_of(column), features)
        after = _with_labels(before, cells.where(inside), features)
        information = after.information - before.information
        if numbers[column]:
            others = cells.where(~inside)
            chosen = most_informative(others, after, features, int(numbers[column]))
            of_class = np.full(len(chosen.gains), column)
            parts.append((others.rows[chosen.positions], of_class, weights[column] * chosen.gains))
            information += float(chosen.gains.sum())
        told += float(weights[column]) * math.log1p(max(information, 0.0))
    rows, columns, gains = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(-gains, kind="stable")
    return Picked(rows[order], columns[order], gains[order]), told


def _with_labels(posterior: Posterior, cells: ClassCells, features: FeaturesOf) -> Posterior:
    """What will be known once these cells are."""
    if not len(cells.rows):
        return posterior
    weights = np.concatenate([posterior.root**2, information_weights(cells.logits)])
    known = np.concatenate([posterior.known, features(cells.rows)])
    return Posterior(known, weights, posterior.prior)
