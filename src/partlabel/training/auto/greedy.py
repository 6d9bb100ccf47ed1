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

    Starts from the best model. Each step adds the model that increases the mean of the criterion
    most; a model can be added more than once. This is done on several random halves of the images,
    and weights are the means over these: a choice on few labels is noisy, and a mean of choices
    less so. Each model's logits are divided by their standard deviation first. The figure of the
    best single model is too good to compare with, because it is the best of many.

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


def without_own_labels(
    logits: Sequence[Logits],
    total: Logits,
    folds: NDArray[np.int64],
    criterion: Criterion,
    most: int,
    seed: int = 0,
) -> Logits:
    """Held-out logits, of which those of a fold are weighted by the labels of other folds alone.

    So no label has an influence on the logits of its own image, and known labels can test them.
    Models differ in the mean and spread of their logits, and folds in the weights of the models.
    The logits of all folds are therefore brought to the mean and spread that ``total`` has in each
    class. These are the same for all folds, and the labels of single images hardly change them.

    Args:
        logits: [n, C] of each model, for images that it was not trained on.
        total: [n, C] of the ensemble that all labels choose.
        folds: [n] of each image.
        criterion, most, seed: as for :func:`choose_weights`.
    """
    held_out = np.empty_like(total)
    for fold in np.unique(folds):
        held, others = folds == fold, np.flatnonzero(folds != fold)
        parts = [part[others] for part in logits]
        weights = choose_weights(parts, _on(criterion, others), most, seed)
        factors = weights / np.array([spread(part) for part in parts])
        ensemble = np.sum(
            [factors[n] * logits[n] for n in np.flatnonzero(weights).tolist()], axis=0
        )
        held_out[held] = like(ensemble, total)[held]
    return held_out


def _on(criterion: Criterion, images: Rows) -> Criterion:
    """The criterion on some of the images; rows are then positions among these."""

    def on_images(logits: Logits, rows: Rows | None = None) -> NDArray[np.float64]:
        return criterion(logits, images if rows is None else images[rows])

    return on_images


def mean_of(figures: NDArray[np.float64]) -> float:
    """The mean over what has a figure; minus infinity if nothing has."""
    known = figures[~np.isnan(figures)]
    return float(known.mean()) if len(known) else -np.inf


def spread(logits: Logits) -> float:
    """The standard deviation of logits, 1 if they are all equal."""
    return float(logits.std()) or 1.0


def like(logits: Logits, others: Logits) -> Logits:
    """Logits [n, C] that have, in each class, the mean and standard deviation of others.

    >>> like(np.array([[0.0], [2.0]]), np.array([[5.0], [9.0]])).tolist()
    [[5.0], [9.0]]
    """
    deviation = logits.std(axis=0)
    scale = others.std(axis=0) / np.where(deviation > 0, deviation, 1.0)
    return np.asarray((logits - logits.mean(axis=0)) * scale + others.mean(axis=0))
