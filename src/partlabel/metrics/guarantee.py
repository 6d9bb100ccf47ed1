"""Guarantees for the labels that a model fills in, tested on labels reserved for this purpose.

A threshold on the scores of a class is accepted if the labels beyond it are shown to be correct
with at least the required precision. Thresholds are tested one after another, from the most
confident one downwards, and the first failure ends the sequence (fixed-sequence testing [1]).
Therefore the chance of a wrong guarantee is at most 5%, however many thresholds are tested. Which
thresholds are tested, and in which order, never depends on the labels that they are tested on. A
label is only filled in if it is more likely right than wrong.

[1] Maurer, Hothorn and Lehmacher, Multiple comparisons in drug clinical trials and preclinical
    assays: a-priori ordered hypotheses, 1995. Angelopoulos et al., Learn then test, 2021.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc
from scipy.stats import beta

from partlabel.labels import ABSENT, PRESENT

CONFIDENCE = 0.95
_STEP = 1.1  # ratio of the ranks of two thresholds that are tested one after the other
_PLENTY = 6  # a class with this many times the fewest labels is never pooled
_STRONG = 0.001  # a class is tested on its own if its p-value on the first part is at most this

Basis = Literal["class", "pooled"]  # whose labels a guarantee is tested on


class Held(NamedTuple):
    """Labels that were not trained on, with scores.

    Args:
        scores: [n, C] calibrated logits: 0 means a probability of one half.
        labels: [n, C] in {-1, 0, 1}
    """

    scores: NDArray[Any]
    labels: NDArray[Any]


class LabelledCells(NamedTuple):
    """Cells with a known label, which show whether a model is right.

    Args:
        confidence: [m] logit of the predicted value: 0 means a probability of one half.
        correct: [m] whether the prediction agrees with the label.
        image: [m] index of the image that a cell belongs to.
    """

    confidence: NDArray[Any]
    correct: NDArray[np.bool_]
    image: NDArray[np.int64]

    def at_threshold(self, threshold: float) -> "Limit":
        """Count the cells whose confidence is at least the threshold."""
        inside = self.confidence >= threshold
        tested, right = int(inside.sum()), int(self.correct[inside].sum())
        per_image = np.bincount(self.image[inside])
        design_effect = float((per_image**2).sum()) / tested if tested else 1.0
        return Limit(threshold, tested, right, design_effect)


@dataclass(frozen=True)
class Limit:
    """A threshold, and the labels that it was tested on.

    Args:
        threshold: least confidence of a label that is filled in; infinite if none is.
        tested: number of labelled cells at or above the threshold.
        right: number of these cells for which the model was right.
        design_effect: number of cells that count as one. Errors within an image may be correlated.
            The worst case is assumed, in which all cells of an image are right or wrong together.
            So a pool of classes counts images, not labels.
    """

    threshold: float = math.inf
    tested: int = 0
    right: int = 0
    design_effect: float = 1.0

    @property
    def counted_as(self) -> float:
        """The number of independent cells that the tested cells count as."""
        return self.tested / self.design_effect

    @property
    def precision(self) -> float:
        """Lower bound of the true precision, with a confidence of 95%."""
        return at_least(self.right / self.design_effect, self.counted_as)

    def p_value(self, precision: float) -> float:
        """The p-value of the hypothesis that the true precision is at most ``precision``."""
        right, tested = self.right / self.design_effect, self.counted_as
        return float(betainc(right, tested - right + 1, precision)) if right else 1.0


@dataclass(frozen=True)
class Guarantee:
    """The guarantee for present or for absent labels of one class.

    Args:
        limit: the threshold, and what it was tested on.
        basis: whose labels it was tested on: ``class`` for those of the class alone, ``pooled`` for
            those of several classes together, None if there is no guarantee.
    """

    limit: Limit
    basis: Basis | None


@dataclass(frozen=True)
class Guarantees:
    """The guarantees for present labels [C] and for absent labels [C] of all classes."""

    present: list[Guarantee]
    absent: list[Guarantee]

    def of(self, value: int) -> list[Guarantee]:
        """The guarantees [C] for ``PRESENT`` or for ``ABSENT``."""
        return self.present if value == PRESENT else self.absent

    def decide(self, scores: NDArray[Any]) -> NDArray[np.int8]:
        """Labels [n, C] for calibrated logits [n, C]; 0 where nothing is guaranteed."""
        high, low = (
            np.array([guarantee.limit.threshold for guarantee in self.of(value)])
            for value in (PRESENT, ABSENT)
        )
        filled = np.where(scores >= high, PRESENT, np.where(-scores >= low, ABSENT, 0))
        return filled.astype(np.int8)


def at_least(right: float, tested: float) -> float:
    """Lower confidence bound of a share: exact (Clopper-Pearson), one-sided, 95%.

    >>> round(at_least(59, 59), 3), round(at_least(92, 93), 3), at_least(0, 0)
    (0.95, 0.95, 0.0)
    """
    return float(beta.ppf(1 - CONFIDENCE, right, tested - right + 1)) if right else 0.0


def fewest(precision: float) -> int:
    """The number of labels that are needed to show a precision if all of them are right.

    >>> fewest(0.95), fewest(0.5)
    (59, 5)
    """
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(precision) - 1e-9)


def passing_limits(
    first: LabelledCells, second: LabelledCells, precision: float, floor: float = 0.0
) -> list[Limit]:
    """The thresholds that pass, in descending order. All hold together with a confidence of 95%.

    Args:
        first: decides where the sequence starts: at the threshold with the lowest p-value.
        second: the cells to test on. Their confidences, but not their labels, also decide which
            thresholds are tested.
        precision: the precision to show.
        floor: only thresholds above this are tested. The default of 0 excludes labels that are more
            likely wrong than right.
    """
    candidates = _candidates(second, precision, floor).tolist()
    p_values = [first.at_threshold(threshold).p_value(precision) for threshold in candidates]
    passed = []
    for threshold in candidates[int(np.argmin(p_values)) :] if candidates else []:
        limit = second.at_threshold(threshold)
        if limit.p_value(precision) > 1 - CONFIDENCE:
            break
        passed.append(limit)
    return passed


def find_guarantees(
    first: Held, second: Held, precision: float, basis: Basis | None = None
) -> Guarantees:
    """Find what can be guaranteed for each class, on its own labels or on those of a pool.

    A class without an absent label in the first part gets no guarantee. Its known labels are then
    no random sample, and any threshold would pass.

    Args:
        first, second: held-out labels. Thresholds are tested on the second part only; the first
            part decides where to start and which classes to pool.
        precision: share of the filled-in labels that must be right.
        basis: ``class`` tests each class on its own, ``pooled`` tests all classes together. By
            default classes are pooled if they have too few labels, or if the first part shows no
            strong evidence for them; all other classes are tested on their own.
    """
    usable = np.flatnonzero((first.labels == ABSENT).any(axis=0)).tolist()
    present, absent = (
        _guarantees_for(first, second, usable, value, precision, basis)
        for value in (PRESENT, ABSENT)
    )
    return Guarantees(present, absent)


def _guarantees_for(
    first: Held,
    second: Held,
    usable: list[int],
    value: int,
    precision: float,
    basis: Basis | None,
) -> list[Guarantee]:
    """The guarantees [C] for present or for absent labels; ``usable`` are the classes to test."""
    if basis is None:
        alone = [j for j in usable if _can_be_alone(first, second, j, value, precision)]
    else:
        alone = usable if basis == "class" else []
    rest = sorted(set(usable) - set(alone))
    groups: list[tuple[Basis, list[int]]] = [*(("class", [j]) for j in alone), ("pooled", rest)]
    guarantees = [Guarantee(Limit(), None)] * second.labels.shape[1]
    for tested_on, classes in groups:
        first_cells, second_cells = (
            _labelled_cells(held, classes, value) for held in (first, second)
        )
        floor = max(0.0, math.log(precision / (1 - precision))) if tested_on == "pooled" else 0.0
        passed = passing_limits(first_cells, second_cells, precision, floor)
        for j in classes if passed else []:
            guarantees[j] = Guarantee(passed[-1], tested_on)
    return guarantees


def _candidates(cells: LabelledCells, precision: float, floor: float = 0.0) -> NDArray[Any]:
    """Thresholds to test in descending order, at ranks that grow geometrically.

    The first rank is the smallest number of cells that can pass, the last one is that of all cells
    above the floor.
    """
    ordered = -np.sort(-cells.confidence[cells.confidence > floor])
    ranks, rank = [], fewest(precision)
    while rank < len(ordered):
        ranks.append(rank)
        rank = max(rank + 1, math.ceil(rank * _STEP))
    if len(ordered) >= fewest(precision):
        ranks.append(len(ordered))
    return np.unique(ordered[np.array(ranks, dtype=np.int64) - 1])[::-1]


def _can_be_alone(first: Held, second: Held, j: int, value: int, precision: float) -> bool:
    """Whether class j has enough evidence to be tested on its own labels.

    This is so if some threshold has a very low p-value on the first part, or if there are plenty of
    labels. A class that hardly passes on the first part would often fail on the second, and get no
    guarantee at all. Of the second part only the number of known labels is used, not their values.
    """
    cells = _labelled_cells(first, [j], value)
    known = [int((held.labels[:, j] != 0).sum()) for held in (first, second)]
    if known[0] == 0:
        return False
    expected = (first.labels[:, j] == value).sum() * known[1] / known[0]
    p_values = (
        cells.at_threshold(threshold).p_value(precision)
        for threshold in _candidates(cells, precision)
    )
    return bool(expected >= _PLENTY * fewest(precision) or min(p_values, default=1) <= _STRONG)


def _labelled_cells(held: Held, classes: Sequence[int], value: int) -> LabelledCells:
    """The known cells of some classes, as predictions of ``PRESENT`` or of ``ABSENT``."""
    scores, labels = held.scores[:, classes], held.labels[:, classes]
    known = labels != 0
    return LabelledCells(value * scores[known], labels[known] == value, np.nonzero(known)[0])
