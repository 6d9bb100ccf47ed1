"""How many known labels are wrong, as far as scores of models that did not see them can tell.

A model makes errors, and so do people. Calibrated scores alone cannot tell which of the two is
wrong where they contradict each other: they are calibrated to the labels, wrong ones included. But
the errors of a model become rarer the surer it is, while people who err at random also do so where
it is sure. These contradictions show how often labels are wrong [1]. Some images mislead a model
altogether. It then contradicts several of their labels, so such images are told apart.

[1] Bootkrajang and Kaban, Label-noise robust logistic regression and its applications, 2012: the
    same model, without images that mislead.
"""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import expit, logit

_PRIOR = 20.0  # rates are as if this many more labels had been right
_GAIN = 7.0  # of the log-likelihood: with less, wrong labels cannot be told from errors of a model
_GAIN_PER_ORIGIN = 2.0  # of the log-likelihood, for each origin but the first
_START = 0.02  # rate of wrong labels that the search starts at
_MOST_HARD = 0.5  # share of the images that are hard at most
_MOST_WRONG = 0.5  # share of the labels of a value that are wrong at most
_ROUNDS = 200
_MOST = 50_000  # labels that the rates are fitted to, about
_TINY = 1e-300

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class _Labels(NamedTuple):
    """Known labels [m]: logits, whether they are present, their images and their origins."""

    logits: Floats
    present: NDArray[np.bool_]
    image: Integers
    origin: Integers


class _Model(NamedTuple):
    """How labels come about.

    Args:
        slopes, intercepts: [2] a label is truly present with the probability of this line of its
            logit, in clear images, and in hard images, which mislead the model.
        share: of the images that are hard.
        missed: [G] for each origin, the share of what is present that is noted as absent.
        invented: [G] the share of what is absent that is noted as present.
    """

    slopes: Floats
    intercepts: Floats
    share: float
    missed: Floats
    invented: Floats


class _Beliefs(NamedTuple):
    """What the labels say about each of them [m], given a model.

    Args:
        likelihood: the logarithm of the probability of all labels.
        hard: [images] the probability that an image is hard.
        chance: [2, m] that a label is truly present, before it is seen, in clear and hard images.
        wrong: [2, m] that the label is wrong.
        weight: [2, m] that its image is clear, and hard.
    """

    likelihood: float
    hard: Floats
    chance: Floats
    wrong: Floats
    weight: Floats


def chance_wrong(
    logits: Floats,
    labels: NDArray[np.int8],
    images: Integers,
    origins: Integers | None = None,
) -> Floats | None:
    """[m] the probability that known labels are wrong: an estimate. None if it cannot be told.

    Wrong labels are taken to be as frequent in clear images as in doubtful ones, within an origin
    and value. Mistakes that people make because an image is hard look like errors of the model, and
    are not counted.

    Args:
        logits: [m] calibrated, of models that were not trained on these labels.
        labels: [m] in {-1, 1}
        images: [m] the image of each label.
        origins: [m] the origin of each label, from 0 on; None if all have the same.
    """
    codes = np.zeros(len(labels), dtype=np.int64) if origins is None else origins
    image = np.unique(images, return_inverse=True)[1].reshape(-1)
    everything = _Labels(logits.astype(np.float64), labels > 0, image, codes)
    if not len(labels):
        return None
    some = _part(everything)
    model, without = (_fit(some, with_wrong=wrong) for wrong in (True, False))
    gain = _believe(model, some).likelihood - _believe(without, some).likelihood
    if gain < _GAIN + _GAIN_PER_ORIGIN * int(codes.max(initial=0)):
        return None
    beliefs = _believe(model, everything)
    return np.asarray((beliefs.weight * beliefs.wrong).sum(axis=0))


def _part(labels: _Labels) -> _Labels:
    """The labels of every few images, if there are too many."""
    step = -(-len(labels.logits) // _MOST)
    keep = labels.image % step == 0
    image = np.unique(labels.image[keep], return_inverse=True)[1].reshape(-1)
    return _Labels(labels.logits[keep], labels.present[keep], image, labels.origin[keep])


def _fit(labels: _Labels, *, with_wrong: bool) -> _Model:
    """The most likely model.

    Args:
        with_wrong: whether labels may be wrong; if not, all contradictions are errors of a model.
    """
    number = int(labels.origin.max(initial=0)) + 1
    rates = np.full(2 * number if with_wrong else 0, logit(_START / _MOST_WRONG))
    start = np.concatenate([[0.0, 0.0, logit(0.3), 0.0, logit(0.1)], rates])

    def cost(parameters: Floats) -> tuple[float, Floats]:
        value, slope = _log_posterior(parameters, labels, number)
        return -value, -slope

    found = scipy.optimize.minimize(
        cost, start, jac=True, method="L-BFGS-B", options={"maxiter": _ROUNDS}
    )
    return _model(found.x, number)


def _model(parameters: Floats, origins: int) -> _Model:
    """The model of parameters without bounds. A hard image has a smaller slope than a clear one."""
    slope, intercept, ratio, other, hard = parameters[:5].tolist()
    slopes = np.exp(slope) * np.array([1.0, expit(ratio)])
    rates = _MOST_WRONG * expit(parameters[5:]) if len(parameters) > 5 else np.zeros(2 * origins)
    share = _MOST_HARD * float(expit(hard))
    return _Model(slopes, np.array([intercept, other]), share, rates[:origins], rates[origins:])


def _log_posterior(parameters: Floats, labels: _Labels, origins: int) -> tuple[float, Floats]:
    """The logarithm of the probability of labels and parameters, and its gradient.

    The gradient is that of the complete data, averaged over what is not seen (Fisher's identity).
    """
    model = _model(parameters, origins)
    beliefs = _believe(model, labels)
    present = np.where(labels.present, 1 - beliefs.wrong, beliefs.wrong)
    errors = beliefs.weight * (present - beliefs.chance)
    by_slope, by_intercept = errors @ labels.logits, errors.sum(axis=1)
    ratio = model.slopes[1] / model.slopes[0]
    odds = model.share * (1 - model.share / _MOST_HARD)
    hard = beliefs.hard.sum() * odds / model.share
    hard -= (1 - beliefs.hard).sum() * odds / (1 - model.share)
    gradient = [
        float(by_slope @ model.slopes),
        by_intercept[0],
        by_slope[1] * model.slopes[1] * (1 - ratio),
        by_intercept[1],
        hard,
    ]
    value, slope = beliefs.likelihood, np.array(gradient)
    if len(parameters) == 5:
        return value, slope
    truly = (beliefs.weight * present).sum(axis=0)
    wrong = (beliefs.weight * beliefs.wrong).sum(axis=0)
    rates = []
    for rate, noted, these in (
        (model.missed, ~labels.present, truly),
        (model.invented, labels.present, 1 - truly),
    ):
        found = np.bincount(labels.origin, wrong * noted, origins)
        others = np.bincount(labels.origin, these, origins) - found + _PRIOR
        rates.append((found - others * rate / (1 - rate)) * (1 - rate / _MOST_WRONG))
        value += _PRIOR * float(np.log1p(-rate).sum())
    return value, np.concatenate([slope, *rates])


def _believe(model: _Model, labels: _Labels) -> _Beliefs:
    """What labels say about themselves and their images."""
    missed, invented = model.missed[labels.origin], model.invented[labels.origin]
    chance = expit(model.slopes[:, None] * labels.logits + model.intercepts[:, None])
    other = 1 - chance
    wrong = np.where(labels.present, other * invented, chance * missed)
    right = np.where(labels.present, chance * (1 - missed), other * (1 - invented))
    noted = np.maximum(wrong + right, _TINY)
    clear, hard = (np.bincount(labels.image, part) for part in np.log(noted))
    clear, hard = clear + np.log1p(-model.share), hard + np.log(max(model.share, _TINY))
    is_hard = expit(hard - clear)
    weight = np.stack([1 - is_hard, is_hard])[:, labels.image]
    total = float(np.logaddexp(clear, hard).sum())
    return _Beliefs(total, is_hard, chance, wrong / noted, weight)
