"""The unknown labels of a class that tell most about it, spread over unlike images."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.judging.suggestion.orderings import ClassCells, Rows
from partlabel.judging.suggestion.posterior import Chosen, Posterior, choose_spread

Floats = NDArray[np.float64]

_MOST_KNOWN = 1000  # known labels of a class that are used: those that weigh most
_LONG, _SHORT = 400, 20  # cells per question whose variance is computed, and whose covariance is
_LEAST_LONG, _LEAST_SHORT = 10_000, 200


class KnownCells(NamedTuple):
    """The known labels of a class: rows [k], values [k] (1 or -1), and the model's logits [k]."""

    rows: Rows
    values: NDArray[np.int8]
    logits: Floats


class FeaturesOf(Protocol):
    """Gives the features of images."""

    def __call__(self, rows: Rows) -> NDArray[np.float32]:
        """[m, D] features of these rows [m], of mean length 1."""


def information_weights(logits: Floats) -> Floats:
    """[m] p (1 - p): what a label tells about its logit."""
    return np.asarray(expit(logits) * expit(-logits))


def posterior_of(known: KnownCells, features: FeaturesOf, most: int = _MOST_KNOWN) -> Posterior:
    """The posterior of a class, from those of its known labels that weigh most, at most so many."""
    weights = information_weights(known.logits)
    used = np.argsort(-weights, kind="stable")[:most]
    return Posterior(features(known.rows[used]), weights[used])


def most_informative(
    cells: ClassCells,
    posterior: Posterior,
    features: FeaturesOf,
    number: int,
    *,
    lean: bool = False,
    lists: tuple[int, int] | None = None,
) -> Chosen:
    """The cells of a class to ask for, in the order of their choice.

    Args:
        cells: unknown cells of the class.
        posterior: what is known about the class.
        features: gives the features of images.
        number: of cells to choose.
        lean: whether information about cells that are likely present is worth more: in proportion
            to their probability.
        lists: number of cells whose variance is computed, and of those whose covariance is; by
            default in proportion to the number to choose.
    """
    lengths = lists or (max(_LONG * number, _LEAST_LONG), max(_SHORT * number, _LEAST_SHORT))
    value = expit(cells.logits) if lean else np.ones(len(cells.logits))
    weights = information_weights(cells.logits)
    long = _highest(weights * value, lengths[0])
    gains = value[long] * np.log1p(
        weights[long] * posterior.of(features(cells.rows[long])).variance
    )
    short = long[_highest(gains, lengths[1])]
    logits = posterior.of(features(cells.rows[short]))
    chosen = choose_spread(logits, weights[short], number, value[short])
    return Chosen(short[chosen.positions], chosen.gains)


def _highest(priorities: Floats, number: int) -> NDArray[np.int64]:
    """The positions of the highest priorities, in any order."""
    if number >= len(priorities):
        return np.arange(len(priorities))
    return np.argpartition(-priorities, number)[:number]
