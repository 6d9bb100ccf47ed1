"""What labels that were held out say of a model's scores."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.base.randomness import key, keys, uniform
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.metrics.calibration import Bins, Calibration, calibrate, reliability
from partlabel.metrics.guarantee import Held, Promises, make_promises
from partlabel.training.selection import by_humans

Guarantee = Literal["class", "pooled"]
Scores = NDArray[np.float64]

_FULLER = 0.1  # so many more labels of a kind than training images, and it is another labelling


class Share(NamedTuple):
    """A share of cells, and how much it may be off by chance, for each class [C]; NaN for none."""

    mean: Scores
    noise: Scores


@dataclass(frozen=True)
class Assessment:
    """What labels that were held out say of a run's scores.

    Args:
        precision: that was asked for.
        calibration: makes probabilities of them.
        promises: how sure the model must be, for each kind of label of each class.
        before, after: what the model says against what is there, on labels that nothing was chosen
            on: as it is, and calibrated.
        filled: share of those labels that would have been filled in as present, and as absent.
        expected: share of those labels that should be present, by calibrated scores.
    """

    precision: float
    calibration: Calibration
    promises: Promises
    before: Bins
    after: Bins
    filled: dict[int, float]
    expected: Share


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
    tables = [by_humans(table) for table, _ in (val, reserved)]
    both = as_unknown(tables[0].merge(tables[1]), training, seed)
    labels = both[: len(val[1])], both[len(val[1]) :]
    calibration = calibrate(val[1], labels[0])
    first, second = (
        Held(calibration.logits(scores), known)
        for (_, scores), known in zip((val, reserved), labels, strict=True)
    )
    promises = make_promises(first, second, precision, guarantee)
    known = second.labels != 0
    present, decided = second.labels[known] == PRESENT, promises.decide(second.scores)[known]
    return Assessment(
        precision,
        calibration,
        promises,
        reliability(reserved[1][known], present),
        reliability(expit(second.scores[known]), present),
        {v: float(np.mean(decided == v)) if len(decided) else 0.0 for v in (PRESENT, ABSENT)},
        expected_share(second.scores, known),
    )


def expected_share(logits: Scores, cells: NDArray[np.bool_]) -> Share:
    """How many of the cells of a class should be present, by calibrated logits [n, C]."""
    number = np.maximum(cells.sum(axis=0), 1)
    said = np.where(cells, expit(logits), 0.0)
    mean = np.where(cells.any(axis=0), said.sum(axis=0) / number, np.nan)
    spread = np.where(cells, (said - mean) ** 2, 0.0).sum(axis=0) / number
    return Share(mean, np.sqrt(spread / number))


def as_unknown(held: LabelTable, training: LabelTable, seed: int) -> NDArray[np.int8]:
    """[n, C] the labels that would be unknown, were these images labelled as training images are.

    Where images are labelled more fully than those to be completed, their labels are no sample of
    what is unknown there: with one positive known in each, most of what is present is known. So of
    each kind as many labels, drawn at random, are left out as a training image has: the one with
    the most for the image with the most, and so on. Images that are labelled alike are a sample as
    they are.

    Args:
        held: human labels.
        training: what is known of training images.
        seed: decides which labels are left out.
    """
    labels = held.dense()
    if not fuller(held, training):
        return labels
    images = keys(held.ids)
    draw = uniform(key(seed, "aside"), images[:, None], keys(held.classes))
    ties = uniform(key(seed, "like"), images)
    for value in (PRESENT, ABSENT):
        own = (labels == value).sum(axis=1)
        place = np.empty(len(own))
        place[np.lexsort((ties, own))] = (np.arange(len(own)) + 0.5) / max(len(own), 1)
        others = np.sort(_per_image(training, value))
        numbers = others[(place * len(others)).astype(np.int64)]
        rank = np.argsort(np.argsort(np.where(labels == value, draw, 2.0), axis=1), axis=1)
        labels[(labels == value) & (rank < numbers[:, None])] = 0
    return labels


def fuller(held: LabelTable, training: LabelTable) -> bool:
    """Whether images have more labels of a kind than training images, by more than chance."""
    for value in (PRESENT, ABSENT):
        ours, theirs = _per_image(held, value), _per_image(training, value)
        if not len(ours) or not len(theirs):
            continue
        noise = math.sqrt(ours.var() / len(ours) + theirs.var() / len(theirs))
        more = ours.mean() - theirs.mean()
        if more > max(3 * noise, _FULLER * theirs.mean(), 1e-9):
            return True
    return False


def _per_image(table: LabelTable, value: int) -> NDArray[np.int64]:
    """[n] how many labels of this kind each image has."""
    return np.bincount(table.cells.rows, table.cells.values == value, len(table)).astype(np.int64)
