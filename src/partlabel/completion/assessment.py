"""What labels that were held out say of a model's scores."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.calibrate import Bins, Calibration, calibrate, reliability
from partlabel.guarantee import Held, Promises, make_promises
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.randomness import key, keys, uniform
from partlabel.selection import by_humans

Guarantee = Literal["class", "pooled"]
Scores = NDArray[np.float64]

_FULLER = 1.5  # times the share known in training images: labelled in another way


@dataclass(frozen=True)
class Assessment:
    """What labels that were held out say of a run's scores.

    Args:
        calibration: makes probabilities of them.
        promises: how sure the model must be, for each kind of label of each class.
        before, after: what the model says against what is there, on labels that nothing was chosen
            on: as it is, and calibrated.
        filled: share of those labels that would have been filled in as present, and as absent.
    """

    calibration: Calibration
    promises: Promises
    before: Bins
    after: Bins
    filled: dict[int, float]


def assess(
    training: LabelTable,
    val: tuple[LabelTable, Scores],
    reserved: tuple[LabelTable, Scores],
    precision: float,
    guarantee: Guarantee | None,
    seed: int,
) -> Assessment:
    """Calibrate scores on validation images, and test thresholds on the reserved ones.

    Args:
        training: what is known of training images.
        val, reserved: held-out images with scores [n, C].
        precision: see :func:`guarantee.make_promises`, and ``guarantee`` too.
        seed: decides which labels of fully labelled images count as known.
    """
    labels = [as_unknown(table, training, seed) for table, _ in (val, reserved)]
    calibration = calibrate(val[1], labels[0])
    first, second = (
        Held(calibration.logits(scores), known)
        for (_, scores), known in zip((val, reserved), labels, strict=True)
    )
    promises = make_promises(first, second, precision, guarantee)
    known = second.labels != 0
    present, decided = second.labels[known] == PRESENT, promises.decide(second.scores)[known]
    return Assessment(
        calibration,
        promises,
        reliability(reserved[1][known], present),
        reliability(expit(second.scores[known]), present),
        {v: float(np.mean(decided == v)) if len(decided) else 0.0 for v in (PRESENT, ABSENT)},
    )


def as_unknown(held: LabelTable, training: LabelTable, seed: int) -> NDArray[np.int8]:
    """[n, C] the labels that would be unknown, were these images labelled as training images are.

    Where images are labelled more fully than those to be completed, their labels are no sample of
    what is unknown there: with one positive known in each, most of what is present is known. So as
    many labels of each kind as a training image has, drawn at random, are left out. Images that are
    labelled alike are a sample as they are.
    """
    truth = by_humans(held)
    labels = truth.dense()
    if truth.known <= _FULLER * training.known:
        return labels
    images = keys(held.ids)
    like = (uniform(key(seed, "like"), images) * len(training)).astype(np.int64)
    draw = uniform(key(seed, "aside"), images[:, None], keys(held.classes))
    cells = training.cells
    for value in (PRESENT, ABSENT):
        numbers = np.bincount(cells.rows, cells.values == value, len(training))[like]
        order = np.argsort(np.where(labels == value, draw, 2.0), axis=1)
        rank = np.argsort(order, axis=1)
        labels[(labels == value) & (rank < numbers[:, None])] = 0
    return labels
