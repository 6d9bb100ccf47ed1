"""Thresholds tested one after the other, from a confident one downwards, until one fails."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.metrics.bounds import (
    allowed_errors,
    at_least,
    expected_power,
    fewest,
    most_errors,
    needed_for,
)
from partlabel.metrics.sampling import Sample

_FEW_ERRORS = 3  # one error by chance does not end a sequence that starts here
_FEW_ERRORS_BY_IMAGE = 1  # there are fewer labels to start with
_STEP = 1.1  # ratio of the ranks of two thresholds that are tested one after the other


@dataclass(frozen=True)
class Limit:
    """A threshold, and the labels that it was tested on.

    Args:
        threshold: least confidence of a label that is filled in; infinite if none is.
        cells: number of cells at or above the threshold that are filled in.
        tested: number of reserved labels at or above the threshold.
        right: number of these labels that the model predicts.
        precision: lower bound of the share of correct labels, with a confidence of 95%: of the
            labels that are filled in if cells were drawn, otherwise of labels like these.
        tests: number of thresholds that could be tested.
    """

    threshold: float = math.inf
    cells: int = 0
    tested: int = 0
    right: int = 0
    precision: float = 0.0
    tests: int = 1

    @property
    def expected(self) -> float:
        """Lower bound of the precision of labels like these, if their images are independent."""
        return at_least(self.right, self.tested)


@dataclass(frozen=True)
class _Ladder:
    """The thresholds that may be tested, in descending order, with counts of a sample [k]."""

    thresholds: NDArray[Any]
    cells: NDArray[np.int64]  # unknown and reserved
    tested: NDArray[np.int64]
    wrong: NDArray[np.int64]


def passing_limits(
    first: Sample | None, sample: Sample, precision: float, floor: float
) -> list[Limit]:
    """The thresholds that pass, in descending order. All hold together with a confidence of 95%.

    Args:
        first: labels that decide where the sequence starts: at the threshold that is expected to
            pass most surely. None to start at the first threshold that may have a few errors.
        sample: the cells to test. Their confidences, but not their labels, also decide which
            thresholds are tested.
        precision: the precision to show.
        floor: only thresholds above this are tested.
    """
    ladder = _ladder(sample, precision, floor)
    number, limits = len(ladder.thresholds), []
    for k in range(_start(first, ladder, sample, precision), number):
        passes, applies, bound = _test(first, sample, ladder, k, precision)
        if not passes:
            break
        if applies:
            limits.append(
                Limit(
                    float(ladder.thresholds[k]),
                    int(ladder.cells[k] - ladder.tested[k]),
                    int(ladder.tested[k]),
                    int(ladder.tested[k] - ladder.wrong[k]),
                    bound,
                    number,
                )
            )
    return limits


def _start(first: Sample | None, ladder: _Ladder, sample: Sample, precision: float) -> int:
    """Where the sequence starts."""
    if not len(ladder.thresholds):
        return 0
    if first is not None:
        return int(np.argmax(_powers(first, ladder, sample, precision)))
    if sample.unit == "cell":
        most = allowed_errors(ladder.cells, sample.fraction, precision)
        return int(np.argmax(most >= min(_FEW_ERRORS, int(most.max()))))
    enough = needed_for(precision, _FEW_ERRORS_BY_IMAGE)
    return int(np.argmax(ladder.tested >= min(enough, int(ladder.tested.max()))))


def predicted_power(first: Sample, sample: Sample, precision: float) -> NDArray[np.float64]:
    """The chance [k] of each threshold to pass, as far as the labels of ``first`` can tell."""
    return _powers(first, _ladder(sample, precision, 0.0), sample, precision)


def _ladder(sample: Sample, precision: float, floor: float) -> _Ladder:
    """Thresholds at ranks that grow geometrically, from the first one that can pass."""
    # a rank counts cells, and an entry of the sample may stand for many
    ranked = np.concatenate([[0], sample.ranks()])
    number = int(ranked[np.searchsorted(-sample.confidence, -floor, side="left")])
    rank = math.ceil(fewest(precision) / max(sample.fraction, 1e-12))
    ranks = []
    while rank < number:
        ranks.append(rank)
        rank = math.ceil(rank * _STEP)
    ranks += [number] if number else []
    entries = np.searchsorted(ranked, np.array(ranks, dtype=np.int64), side="left") - 1
    thresholds = np.unique(sample.confidence[entries])[::-1]
    ends = np.searchsorted(-sample.confidence, -thresholds, side="right")
    tested, wrong = (
        np.concatenate([[0], np.cumsum(part)])[ends] for part in (sample.reserved, sample.wrong)
    )
    return _Ladder(thresholds, ranked[ends], tested, wrong)


def _powers(
    first: Sample, ladder: _Ladder, sample: Sample, precision: float
) -> NDArray[np.float64]:
    most = allowed_errors(ladder.cells, sample.fraction, precision)
    rates = _error_rates(first, ladder.thresholds)
    return expected_power(most, ladder.cells * sample.fraction, rates)


def _error_rates(first: Sample, thresholds: NDArray[Any]) -> NDArray[np.float64]:
    """The share of errors [k] beyond each threshold in the first part, a little above the count."""
    ends = np.searchsorted(-first.confidence, -thresholds, side="right")
    wrong = np.concatenate([[0], np.cumsum(first.wrong)])[ends]
    return np.asarray((wrong + 0.5) / (ends + 1))


def _test(
    first: Sample | None, sample: Sample, ladder: _Ladder, k: int, precision: float
) -> tuple[bool, bool, float]:
    """Whether a threshold passes, whether labels may be filled in from it, and its bound."""
    cells, tested, wrong = (int(part[k]) for part in (ladder.cells, ladder.tested, ladder.wrong))
    if sample.unit == "cell":
        most = int(allowed_errors(np.array([cells]), sample.fraction, precision)[0])
        # the errors in the sample must make up for it if more labels than expected are in it
        applies = wrong >= (1 - precision) * (tested - sample.fraction * cells) - 1e-9
        errors = most_errors(wrong, cells, sample.fraction)
        return wrong <= most, applies, 1 - (errors - wrong) / max(cells - tested, 1)
    inside = sample.reserved & (sample.confidence >= ladder.thresholds[k])
    if first is None:
        bound = _design_effect_bound(sample.image[inside], sample.wrong[inside])
        return bound >= precision, True, bound
    one = _one_per_image(sample, inside)
    bound = at_least(len(one) - int(sample.wrong[one].sum()), len(one))
    return bound >= precision and wrong <= (1 - precision) * tested, True, bound


def _one_per_image(sample: Sample, inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """One of the cells of each image, drawn at random, so that errors are independent."""
    cells = np.flatnonzero(inside)
    if sample.draw is not None:
        cells = cells[np.argsort(sample.draw[cells], kind="stable")]
    return np.asarray(cells[np.unique(sample.image[cells], return_index=True)[1]])


def _design_effect_bound(image: NDArray[Any], wrong: NDArray[np.bool_]) -> float:
    """Lower bound of the precision, with counts divided by the labels that count as one.

    Cells of an image may be right or wrong together. If they always are, the variance of a mean is
    larger by this factor (Kish). The bound is not exact, since the factor is a mean.
    """
    per_image = np.unique(image, return_counts=True)[1]
    tested = len(image)
    effect = float((per_image**2).sum()) / tested if tested else 1.0
    return at_least((tested - int(wrong.sum())) / effect, tested / effect)
