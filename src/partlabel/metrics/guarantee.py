"""What can be promised of labels that a model fills in, tested on labels that were kept for that.

Thresholds are tested one after another, from confident to less so, and the first that fails ends it
(fixed-sequence testing [1]): so although many are tried, a wrong promise is made in at most 5% of
cases. Which thresholds are tested, and in which order, is decided without the labels that they are
tested on. Nothing is filled in against the odds.

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
_STEP = 1.1  # from one rank to the next
_PLENTY = 6  # times the fewest labels: a class with so many is never pooled
_STRONG = 0.001  # doubt that the first part may leave if a class is tested on its own

Basis = Literal["class", "pooled", ""]


class Held(NamedTuple):
    """Labels that were held out [n, C], and scores [n, C]: calibrated logits, 0 for even odds."""

    scores: NDArray[Any]
    labels: NDArray[Any]


class Judged(NamedTuple):
    """How sure a model is of cells [m], 0 for even odds; whether it is right; of which image."""

    sure: NDArray[Any]
    right: NDArray[np.bool_]
    image: NDArray[np.int64]

    def beyond(self, threshold: float) -> "Limit":
        """Those that are as sure as this."""
        inside = self.sure >= threshold
        tested, right = int(inside.sum()), int(self.right[inside].sum())
        sizes = np.bincount(self.image[inside])
        return Limit(threshold, tested, right, float((sizes**2).sum()) / tested if tested else 1.0)


@dataclass(frozen=True)
class Limit:
    """How sure a model must be, and how many labels say that this is enough.

    Args:
        threshold: infinite if nothing is sure enough.
        tested: how many cells that are as sure had a label.
        right: in how many of them the model was right.
        alike: how many cells count as one: those of an image may be right or wrong together, so
            that a pool of classes is worth as many cells as if they always were.
    """

    threshold: float = math.inf
    tested: int = 0
    right: int = 0
    alike: float = 1.0

    @property
    def precision(self) -> float:
        """What the true precision is at least, with a confidence of 95%."""
        return at_least(self.right / self.alike, self.tested / self.alike)

    def doubt(self, precision: float) -> float:
        """How well this goes with a precision, or less: a p-value."""
        right, tested = self.right / self.alike, self.tested / self.alike
        return float(betainc(right, tested - right + 1, precision)) if right else 1.0


@dataclass(frozen=True)
class Promise:
    """What is promised for one kind of label of one class, and on whose labels that rests."""

    limit: Limit
    basis: Basis


@dataclass(frozen=True)
class Promises:
    """What is promised for present and for absent labels of each class [C]."""

    present: list[Promise]
    absent: list[Promise]

    def of(self, value: int) -> list[Promise]:
        """Those for this kind of label."""
        return self.present if value == PRESENT else self.absent

    def decide(self, scores: NDArray[Any]) -> NDArray[np.int8]:
        """[n, C] present, absent, or 0 where nothing is promised."""
        high, low = (
            np.array([promise.limit.threshold for promise in self.of(value)])
            for value in (PRESENT, ABSENT)
        )
        filled = np.where(scores >= high, PRESENT, np.where(-scores >= low, ABSENT, 0))
        return filled.astype(np.int8)


def at_least(right: float, tested: float) -> float:
    """The lower end of a share: exact (Clopper-Pearson), one-sided, 95%.

    >>> round(at_least(59, 59), 3), round(at_least(92, 93), 3), at_least(0, 0)
    (0.95, 0.95, 0.0)
    """
    return float(beta.ppf(1 - CONFIDENCE, right, tested - right + 1)) if right else 0.0


def fewest(precision: float) -> int:
    """How many labels, all right, show a precision.

    >>> fewest(0.95), fewest(0.5)
    (59, 5)
    """
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(precision) - 1e-9)


def descend(first: Judged, second: Judged, precision: float, floor: float = 0.0) -> list[Limit]:
    """Thresholds that pass, each wider than the one before; all hold at once with 95%.

    Args:
        first: where to start is decided on these, at the threshold that they speak for most.
        second: thresholds are ranks of these, and tested on these.
        precision: to be shown.
        floor: thresholds are above this; by default, nothing is said against the odds.
    """
    ladder = _ladder(second, precision, floor).tolist()
    doubts = [first.beyond(threshold).doubt(precision) for threshold in ladder]
    passed = []
    for threshold in ladder[int(np.argmin(doubts)) :] if ladder else []:
        limit = second.beyond(threshold)
        if limit.doubt(precision) > 1 - CONFIDENCE:
            break
        passed.append(limit)
    return passed


def make_promises(
    first: Held, second: Held, precision: float, guarantee: Literal["class", "pooled"] | None = None
) -> Promises:
    """What can be promised, for each class on its own labels or on those of several together.

    A class of which the first part has no absent label gets nothing: then the known ones are no
    random sample, and any threshold would pass.

    Args:
        first, second: labels that were held out; only the second ones are tested on.
        precision: share of what is filled in that must be right.
        guarantee: ``class`` for each class on its own, ``pooled`` for all together; otherwise those
            with too few labels, or for which the first part does not speak strongly, together, and
            the others on their own.
    """
    usable = np.flatnonzero((first.labels == ABSENT).any(axis=0)).tolist()
    present, absent = (
        _promise(first, second, usable, value, precision, guarantee) for value in (PRESENT, ABSENT)
    )
    return Promises(present, absent)


def _promise(
    first: Held,
    second: Held,
    usable: list[int],
    value: int,
    precision: float,
    guarantee: Literal["class", "pooled"] | None,
) -> list[Promise]:
    """What can be promised for one kind of label, for each class [C]."""
    alone = {
        "class": usable,
        "pooled": [],
        None: [j for j in usable if _stands(first, second, j, value, precision)],
    }[guarantee]
    rest = sorted(set(usable) - set(alone))
    groups: list[tuple[Basis, list[int]]] = [*(("class", [j]) for j in alone), ("pooled", rest)]
    promises = [Promise(Limit(), "")] * second.labels.shape[1]
    for basis, classes in groups:
        early, late = (_judged(held, classes, value) for held in (first, second))
        floor = max(0.0, math.log(precision / (1 - precision))) if basis == "pooled" else 0.0
        passed = descend(early, late, precision, floor)
        for j in classes if passed else []:
            promises[j] = Promise(passed[-1], basis)
    return promises


def _ladder(cells: Judged, precision: float, floor: float = 0.0) -> NDArray[Any]:
    """Thresholds to be tested: from the first rank that can pass to the last, in growing steps."""
    ordered = -np.sort(-cells.sure[cells.sure > floor])
    ranks, rank = [], fewest(precision)
    while rank < len(ordered):
        ranks.append(rank)
        rank = max(rank + 1, math.ceil(rank * _STEP))
    if len(ordered) >= fewest(precision):
        ranks.append(len(ordered))
    return np.unique(ordered[np.array(ranks, dtype=np.int64) - 1])[::-1]


def _stands(first: Held, second: Held, j: int, value: int, precision: float) -> bool:
    """Whether a class has labels enough to be judged by: the second part is not asked for values.

    It has if the first part speaks strongly for some threshold, or if there are plenty. One that
    hardly passes on the first part would often fail on the second, and get nothing.
    """
    cells = _judged(first, [j], value)
    sizes = [int((held.labels[:, j] != 0).sum()) for held in (first, second)]
    if sizes[0] == 0:
        return False
    plenty = (first.labels[:, j] == value).sum() * sizes[1] / sizes[0]
    doubts = (cells.beyond(limit).doubt(precision) for limit in _ladder(cells, precision))
    return bool(plenty >= _PLENTY * fewest(precision) or min(doubts, default=1) <= _STRONG)


def _judged(held: Held, classes: Sequence[int], value: int) -> Judged:
    """The known cells of these classes, as to whether they are present, or absent."""
    scores, labels = held.scores[:, classes], held.labels[:, classes]
    known = labels != 0
    return Judged(value * scores[known], labels[known] == value, np.nonzero(known)[0])
