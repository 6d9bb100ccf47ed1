"""Choose the weights of an ensemble, one model at a time.

[1] Caruana et al., Ensemble Selection from Libraries of Models, ICML 2004.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
Criterion = Callable[[Logits], NDArray[np.float64]]  # logits [n, C] to figures of classes [C]

_STEPS = 20
_LEAST_STEP = 1e-4  # increase of the criterion that is worth a further step
_LEAST_GAIN = 1e-3  # increase over the best single model that is worth an ensemble
_ERRORS = 0.5  # standard errors that this increase must exceed too


def choose_weights(
    logits: Sequence[Logits], criterion: Criterion, most: int
) -> NDArray[np.float64]:
    """The weight of each model in the ensemble, in total 1.

    Starts from the best model, and adds in each step the model, which may be in already, that
    increases the mean of the criterion most. Each model's logits are divided by their standard
    deviation first. The ensemble is kept only if it is better than the best single model by more
    than half a standard error of the difference over classes: a mean of models is seldom worse than
    the best of them, so little evidence is enough.

    Args:
        logits: [n, C] of each model.
        criterion: the figure of each class, NaN where it has none.
        most: models in the ensemble.
    """
    scaled = [part / spread(part) for part in logits]
    single = [criterion(part) for part in scaled]
    best = int(np.argmax([np.nanmean(figures) for figures in single]))
    picks = _add_models(scaled, criterion, best, float(np.nanmean(single[best])), most)
    total = np.mean([scaled[pick] for pick in picks], axis=0)
    if not is_better(criterion(total), single[best]):
        picks = [best]
    return np.bincount(picks, minlength=len(logits)) / len(picks)


def _add_models(
    scaled: list[Logits], criterion: Criterion, first: int, score: float, most: int
) -> list[int]:
    picks, total = [first], scaled[first]
    while len(picks) < _STEPS:
        allowed = range(len(scaled)) if len(set(picks)) < most else sorted(set(picks))
        scores = {n: float(np.nanmean(criterion(total + scaled[n]))) for n in allowed}
        pick = max(scores, key=lambda n: scores[n])
        if scores[pick] < score + _LEAST_STEP:
            break
        picks, total, score = [*picks, pick], total + scaled[pick], scores[pick]
    return picks


def is_better(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> bool:
    """Whether figures of classes are higher by half a standard error, and by 0.1 points."""
    gain = (ours - theirs)[~np.isnan(ours - theirs)]
    if not len(gain):
        return False
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
    return bool(gain.mean() > max(_ERRORS * error, _LEAST_GAIN))


def spread(logits: Logits) -> float:
    """The standard deviation of logits, 1 if they are all equal."""
    return float(logits.std()) or 1.0
