"""Known labels that look wrong, and unknown labels that are worth asking for."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.images.batches import Rows
from partlabel.judging.completion.held_labels import Mask, Scores
from partlabel.labels import ABSENT, CHOSEN, CONFIRMED, PRESENT, LabelTable
from partlabel.labels.cells import Cells
from partlabel.metrics.label_noise import chance_wrong
from partlabel.training.reserving import may_test

UNLIKELY = 0.2  # labels are listed if they are right with a lower probability
_MOST_DOUBTFUL = 1000  # unknown labels that are listed


class Suspect(NamedTuple):
    """A known label that looks wrong, its calibrated score, and whether it was trained on."""

    image: str
    name: str
    value: int
    score: float
    trained: bool


class Doubtful(NamedTuple):
    """An unknown label that is not filled in, with its calibrated score."""

    image: str
    name: str
    score: float


class ShareWrong(NamedTuple):
    """An estimate: the share of suspects that are wrong.

    Args:
        share: of these suspects.
        suspects: the number of suspects that it is about: those that the model was not trained on,
            of origins that noted present and absent labels.
    """

    share: float
    suspects: int


def find_suspects(
    table: LabelTable, known: Cells, logits: Scores, trained: Mask, precision: float
) -> list[Suspect]:
    """Known labels whose probability to be right is low, the least likely first.

    Labels that a human gave or confirmed because a model asked are left out. So are labels of
    classes that are known to be present only, or absent only: nothing shows how likely they are.

    Args:
        table: the images and classes.
        known: all known labels.
        logits: [m] calibrated, of models that were not trained on a label where there are such.
        trained: [m] whether the score of a label is by a model that was trained on it.
        precision: of a completion; if it is below 80%, less likely labels are listed too.
    """
    found = np.flatnonzero(_may_be_listed(known) & (known.values * logits < -_limit(precision)))
    order = found[np.argsort(-np.abs(logits[found]), kind="stable")]
    rows, columns = known.rows[order], known.columns[order]
    parts = (rows, columns, known.values[order], logits[order], trained[order])
    return [
        Suspect(table.ids[i], table.classes[j], value, float(expit(logit)), is_trained)
        for i, j, value, logit, is_trained in zip(*(p.tolist() for p in parts), strict=True)
    ]


def estimate_wrong(
    table: LabelTable, known: Cells, logits: Scores, honest: Mask, precision: float
) -> ShareWrong | None:
    """The share of suspects that are wrong: an estimate. None if it cannot be told from scores.

    Args:
        table, known, logits, precision: as in :func:`find_suspects`.
        honest: [m] where logits are calibrated, and of models that were not trained on a label.
    """
    listed = _may_be_listed(known) & (known.values * logits < -_limit(precision))
    used = np.flatnonzero(honest & may_test(table.with_cells(known)))
    if not listed[used].any():
        return None
    _, codes = np.unique(known.origins_or_none()[used], return_inverse=True)
    rows, values = known.rows[used], known.values[used]
    chance = chance_wrong(logits[used], values, rows, codes.reshape(-1).astype(np.int64))
    if chance is None:
        return None
    number = int(listed[used].sum())
    return ShareWrong(float(chance[listed[used]].mean()), number)


def _may_be_listed(known: Cells) -> Mask:
    """[m] labels that a human gave unasked, of classes with present and absent labels."""
    columns = known.columns
    present, absent = (
        np.bincount(columns[known.values == value], minlength=int(columns.max(initial=0)) + 1)
        for value in (PRESENT, ABSENT)
    )
    both = ((present > 0) & (absent > 0))[columns]
    return both & ~np.isin(known.asked_or_not(), (CHOSEN, CONFIRMED))


def _limit(precision: float) -> float:
    """The logit against a label from which on it is listed."""
    likely = max(min(precision, 1 - UNLIKELY), 0.5)
    return math.log(likely / (1 - likely))


class DoubtfulCells:
    """The unknown cells with a probability nearest to one half, of images that come in blocks."""

    def __init__(self) -> None:
        self.rows = np.empty(0, dtype=np.int64)
        self.columns, self.logits = self.rows, np.empty(0)

    @property
    def farthest(self) -> float:
        """How far from 0 the calibrated logit of a cell may be that is listed."""
        is_full = len(self.logits) >= _MOST_DOUBTFUL
        return float(np.abs(self.logits).max()) if is_full else math.inf

    def add(self, rows: Rows, columns: NDArray[np.int64], logits: Scores) -> None:
        """Look at cells [m], in the order of their rows."""
        joined = np.concatenate([self.logits, logits])
        kept = _lowest(np.abs(joined), _MOST_DOUBTFUL)
        self.rows = np.concatenate([self.rows, rows])[kept]
        self.columns = np.concatenate([self.columns, columns])[kept]
        self.logits = joined[kept]

    def of(self, table: LabelTable) -> list[Doubtful]:
        """The cells with the names of a table, the most doubtful first."""
        parts = (self.rows, self.columns, self.logits)
        return [
            Doubtful(table.ids[i], table.classes[j], float(expit(logit)))
            for i, j, logit in zip(*(part.tolist() for part in parts), strict=True)
        ]


def _lowest(values: Scores, number: int) -> NDArray[np.int64]:
    """The positions of the lowest values, in ascending order; of equal ones the first.

    >>> _lowest(np.array([3.0, 1.0, 2.0, 1.0, 2.0]), 3).tolist()
    [1, 3, 2]
    """
    if len(values) > number:  # sorting all of millions takes ten times as long
        highest = np.partition(values, number - 1)[number - 1]
        chosen = np.flatnonzero(values <= highest)
    else:
        chosen = np.arange(len(values))
    return chosen[np.argsort(values[chosen], kind="stable")][:number]


def most_common(counts: NDArray[np.int64], totals: NDArray[np.int64]) -> int:
    """The position with the highest share, of those with more than one; -1 if there is none."""
    share = np.where(counts > 1, counts / np.maximum(totals, 1), -1.0)
    return int(np.argmax(share)) if len(share) and share.max() > 0 else -1
