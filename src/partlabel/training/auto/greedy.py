"""Choose the weights of an ensemble, one model at a time, on many halves of the images.

[1] Caruana et al., Ensemble Selection from Libraries of Models, ICML 2004.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from partlabel.images.batches import Rows

Logits = NDArray[np.float32]


class Criterion(Protocol):
    """Figures, of classes or of labels, of logits [n, C]."""

    def __call__(self, logits: Logits, rows: Rows | None = None) -> NDArray[np.float64]:
        """Logits of all images, or of ``rows`` alone."""


_HALVES = 8  # of the images, on each of which an ensemble is chosen
_STEPS = 10  # models that are added for a half, each as often as it helps
_LEAST_STEP = 1e-4  # increase of the criterion that is worth a further step
_LIBRARY = 16  # models, at most, that are chosen from: the best ones


def choose_weights(
    logits: Sequence[Logits], criterion: Criterion, most: int, seed: int = 0
) -> NDArray[np.float64]:
    """The weight of each model in the ensemble, in total 1.

    Starts from the best model, and adds in each step the model, which may be in already, that
    increases the mean of the criterion most. This is done on several random halves of the images,
    and weights are the means over these: a choice on few labels is noisy, and a mean of choices
    less so. Each model's logits are divided by their standard deviation first. The best single
    model is no yardstick: as the best of many, its figure is too good.

    Args:
        logits: [n, C] of each model.
        criterion: figures whose mean is to be increased, NaN for none.
        most: models in the ensemble.
        seed: of the halves.
    """
    scaled = [part / spread(part) for part in logits]
    single = [mean_of(criterion(part)) for part in scaled]
    ranked = sorted(range(len(logits)), key=lambda n: -single[n])
    weights = np.zeros(len(logits))
    if most == 1:
        weights[ranked[0]] = 1.0
        return weights
    library = ranked[:_LIBRARY]
    rng = np.random.default_rng(seed)
    for _ in range(_HALVES):
        half = np.sort(rng.permutation(len(scaled[0]))[: -(-len(scaled[0]) // 2)])
        picks = add_models([scaled[n][half] for n in library], partial(criterion, rows=half))
        for pick in picks:
            weights[library[pick]] += 1 / len(picks)
    weights[np.argsort(-weights, kind="stable")[most:]] = 0
    return np.asarray(weights / weights.sum())


def add_models(
    scaled: Sequence[Logits], criterion: Callable[[Logits], NDArray[np.float64]]
) -> list[int]:
    """The models in the order in which they are added, each step being the best one."""
    picks: list[int] = []
    total, score = np.zeros_like(scaled[0]), -np.inf
    while len(picks) < _STEPS:
        scores = [mean_of(criterion(total + part)) for part in scaled]
        pick = int(np.argmax(scores))
        if scores[pick] < score + _LEAST_STEP:
            break
        picks, total, score = [*picks, pick], total + scaled[pick], scores[pick]
    return picks or [0]


def mean_of(figures: NDArray[np.float64]) -> float:
    """The mean over what has a figure; minus infinity if nothing has."""
    known = figures[~np.isnan(figures)]
    return float(known.mean()) if len(known) else -np.inf


def spread(logits: Logits) -> float:
    """The standard deviation of logits, 1 if they are all equal."""
    return float(logits.std()) or 1.0
