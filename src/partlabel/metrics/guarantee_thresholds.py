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
    most_wrong,
)
from partlabel.metrics.sampling import Sample, Unit

# where a sequence starts without labels that choose: one error by chance does not end it there, or
# none by image, since there are fewer labels to start with
_FEW_ERRORS: dict[Unit, int] = {"cell": 3, "image": 1}
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
    """The thresholds that may be tested, in descending order, with counts of a sample [k].

    Args:
        independent: the independent labels that the tested ones count as, if images are drawn.
    """

    thresholds: NDArray[Any]
    cells: NDArray[np.int64]  # unknown and reserved
    tested: NDArray[np.int64]
    wrong: NDArray[np.int64]
    independent: NDArray[np.float64]


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
    ladder = _ladder(first, sample, precision, floor)
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
    """Where the sequence starts.

    Labels that test must not decide it, and calibrated scores have seen these if none choose.
    """
    if not len(ladder.thresholds):
        return 0
    if first is not None:
        return int(np.argmax(_powers(first, ladder, sample, precision)))
    most = _most(ladder, sample, precision)
    return int(np.argmax(most >= min(_FEW_ERRORS[sample.unit], int(most.max()))))


@dataclass(frozen=True)
class Prospect:
    """What a sequence of tests may come to, before it is tested.

    Args:
        chance: of the threshold that is most likely to pass.
        finds: the number of right labels that are expected to be filled in.
    """

    chance: float = 0.0
    finds: float = 0.0


def prospect_of(first: Sample, sample: Sample, precision: float, floor: float) -> Prospect:
    """What is expected of a sequence of tests, as far as the labels of ``first`` can tell.

    The arguments are those of :func:`passing_limits`.
    """
    ladder = _ladder(first, sample, precision, floor)
    if not len(ladder.thresholds):
        return Prospect()
    powers = _powers(first, ladder, sample, precision)
    start = int(np.argmax(powers))
    reached = np.minimum.accumulate(powers[start:])
    right = ladder.cells * (1 - sample.fraction) * (1 - _error_rates(first, ladder.thresholds))
    return Prospect(float(powers[start]), float(reached @ np.diff(right[start:], prepend=0.0)))


def _ladder(first: Sample | None, sample: Sample, precision: float, floor: float) -> _Ladder:
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
    independent = _independent(first, sample)[tested]
    return _Ladder(thresholds, ranked[ends], tested, wrong, independent)


def _powers(
    first: Sample, ladder: _Ladder, sample: Sample, precision: float
) -> NDArray[np.float64]:
    """The chance [k] of each threshold to pass, as far as the labels of ``first`` can tell."""
    tested = ladder.cells * sample.fraction if sample.unit == "cell" else ladder.independent
    rates = _error_rates(first, ladder.thresholds)
    return expected_power(_most(ladder, sample, precision), tested, rates)


def _most(ladder: _Ladder, sample: Sample, precision: float) -> NDArray[np.int64]:
    """The most errors [k] among the labels that test with which a threshold passes; -1 for none."""
    if sample.unit == "cell":
        return allowed_errors(ladder.cells, sample.fraction, precision)
    return most_wrong(ladder.independent, precision)


def _error_rates(first: Sample, thresholds: NDArray[Any]) -> NDArray[np.float64]:
    """The share of errors [k] beyond each threshold in the first part, a little above the count."""
    ends = np.searchsorted(-first.confidence, -thresholds, side="right")
    wrong = np.concatenate([[0], np.cumsum(first.wrong)])[ends]
    return np.asarray((wrong + 0.5) / (ends + 1))


def _independent(first: Sample | None, sample: Sample) -> NDArray[np.float64]:
    """[t + 1] how many independent labels the most confident t reserved ones count as.

    Cells of an image may be right or wrong together. So each image counts as one label, if one of
    its labels is drawn for the test. Without labels that choose, all count, divided by the factor
    by which the variance of a mean is larger if cells of an image always are (Kish).
    """
    if sample.unit == "cell":
        return np.arange(np.count_nonzero(sample.reserved) + 1, dtype=np.float64)
    image = sample.image[sample.reserved]
    order = np.argsort(image, kind="stable")
    earlier = np.empty(len(image), dtype=np.int64)  # labels of the same image before this one
    earlier[order] = np.arange(len(image)) - np.searchsorted(image[order], image[order])
    if first is not None:
        return np.concatenate([[0.0], np.cumsum(earlier == 0)])
    squares = np.cumsum(2 * earlier + 1)  # of the number of labels of each image, summed
    return np.concatenate([[0.0], (np.arange(len(image)) + 1) ** 2 / squares])


def _test(
    first: Sample | None, sample: Sample, ladder: _Ladder, k: int, precision: float
) -> tuple[bool, bool, float]:
    """Whether a threshold passes, whether labels may be filled in from it, and its bound."""
    cells, tested, wrong = (int(part[k]) for part in (ladder.cells, ladder.tested, ladder.wrong))
    if sample.unit == "cell":
        if wrong > int(allowed_errors(np.array([cells]), sample.fraction, precision)[0]):
            return False, False, 0.0
        # the errors in the sample must make up for it if more labels than expected are in it
        applies = wrong >= (1 - precision) * (tested - sample.fraction * cells) - 1e-9
        errors = most_errors(wrong, cells, sample.fraction)
        return True, applies, 1 - (errors - wrong) / max(cells - tested, 1)
    if first is None:  # not exact, since the factor is a mean
        number = float(ladder.independent[k])
        bound = at_least(number * (tested - wrong) / max(tested, 1), number)
        return bound >= precision, True, bound
    inside = sample.reserved & (sample.confidence >= ladder.thresholds[k])
    one = _one_per_image(sample, inside)
    bound = at_least(len(one) - int(sample.wrong[one].sum()), len(one))
    return bound >= precision and wrong <= (1 - precision) * tested, True, bound


def _one_per_image(sample: Sample, inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """One of the cells of each image, drawn at random, so that errors are independent."""
    cells = np.flatnonzero(inside)
    if sample.draw is not None:
        cells = cells[np.argsort(sample.draw[cells], kind="stable")]
    return np.asarray(cells[np.unique(sample.image[cells], return_index=True)[1]])
