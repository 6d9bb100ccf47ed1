"""The test of a run's scores on held-out labels: calibration and guarantees."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.base.randomness import key, keys, uniform
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.metrics.calibration import Bins, Calibration, calibrate, reliability
from partlabel.metrics.guarantee import Basis, Guarantees, Held, find_guarantees
from partlabel.training.selection import by_humans

Scores = NDArray[np.float64]

_MORE = 0.1  # share of additional labels above which images count as labelled differently


class Share(NamedTuple):
    """A share of cells per class [C] and its standard error; NaN for a class without cells."""

    mean: Scores
    noise: Scores


@dataclass(frozen=True)
class Assessment:
    """The scores of a run, tested on held-out labels.

    Args:
        precision: the precision that is guaranteed.
        calibration: turns scores into probabilities.
        guarantees: the threshold for present and for absent labels of each class.
        before, after: reliability on reserved labels, of raw and of calibrated scores.
        filled: share of the reserved labels that would have been filled in as present, as absent.
        expected: share of the reserved labels that calibrated scores expect to be present.
    """

    precision: float
    calibration: Calibration
    guarantees: Guarantees
    before: Bins
    after: Bins
    filled: dict[int, float]
    expected: Share


def assess(
    training: LabelTable,
    val: tuple[LabelTable, Scores],
    reserved: tuple[LabelTable, Scores],
    precision: float,
    basis: Basis | None,
    seed: int,
) -> Assessment:
    """Calibrate scores on validation images, and test thresholds on the reserved ones.

    Args:
        training: the labels of the training images.
        val, reserved: held-out images with scores [n, C].
        precision, basis: see :func:`guarantee.find_guarantees`.
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
    guarantees = find_guarantees(first, second, precision, basis)
    known = second.labels != 0
    present, decided = second.labels[known] == PRESENT, guarantees.decide(second.scores)[known]
    return Assessment(
        precision,
        calibration,
        guarantees,
        reliability(reserved[1][known], present),
        reliability(expit(second.scores[known]), present),
        {
            value: float(np.mean(decided == value)) if len(decided) else 0.0
            for value in (PRESENT, ABSENT)
        },
        expected_share(second.scores, known),
    )


def expected_share(logits: Scores, cells: NDArray[np.bool_]) -> Share:
    """The share of the cells of each class that calibrated logits [n, C] expect to be present."""
    number = np.maximum(cells.sum(axis=0), 1)
    probabilities = np.where(cells, expit(logits), 0.0)
    mean = np.where(cells.any(axis=0), probabilities.sum(axis=0) / number, np.nan)
    spread = np.where(cells, (probabilities - mean) ** 2, 0.0).sum(axis=0) / number
    return Share(mean, np.sqrt(spread / number))


def as_unknown(held: LabelTable, training: LabelTable, seed: int) -> NDArray[np.int8]:
    """[n, C] the labels that would be unknown if these images were labelled like training images.

    If held-out images have more labels than training images, their labels are no sample of the
    unknown labels there. With one positive per training image, for example, most present labels are
    known already. So each held-out image leaves out as many random labels of each kind as a
    training image has: the image with the most labels as many as the training image with the most,
    and so on. Images that are labelled like training images are a sample as they are.

    Args:
        held: human labels of held-out images.
        training: the labels of the training images.
        seed: decides which labels are left out.
    """
    labels = held.dense()
    if not has_more_labels(held, training):
        return labels
    images = keys(held.ids)
    draw = uniform(key(seed, "aside"), images[:, None], keys(held.classes))
    ties = uniform(key(seed, "like"), images)
    for value in (PRESENT, ABSENT):
        own = (labels == value).sum(axis=1)
        quantile = np.empty(len(own))
        quantile[np.lexsort((ties, own))] = (np.arange(len(own)) + 0.5) / max(len(own), 1)
        others = np.sort(_per_image(training, value))
        numbers = others[(quantile * len(others)).astype(np.int64)]
        rank = np.argsort(np.argsort(np.where(labels == value, draw, 2.0), axis=1), axis=1)
        labels[(labels == value) & (rank < numbers[:, None])] = 0
    return labels


def has_more_labels(held: LabelTable, training: LabelTable) -> bool:
    """Whether images have more labels of a kind than training images, by more than chance."""
    for value in (PRESENT, ABSENT):
        ours, theirs = _per_image(held, value), _per_image(training, value)
        if not len(ours) or not len(theirs):
            continue
        noise = math.sqrt(ours.var() / len(ours) + theirs.var() / len(theirs))
        more = ours.mean() - theirs.mean()
        if more > max(3 * noise, _MORE * theirs.mean(), 1e-9):
            return True
    return False


def _per_image(table: LabelTable, value: int) -> NDArray[np.int64]:
    """[n] the number of labels of this kind per image."""
    return np.bincount(table.cells.rows, table.cells.values == value, len(table)).astype(np.int64)
