"""Known labels that look wrong, and unknown labels that are worth asking for."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.judging.completion.held_labels import Mask, Scores
from partlabel.labels import CHOSEN, CONFIRMED, LabelTable

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


def find_suspects(
    known: LabelTable, logits: Scores, trained: Mask, precision: float
) -> list[Suspect]:
    """Known labels whose probability to be right is low, the least likely first.

    Labels that a human gave or confirmed because a model asked are left out.

    Args:
        known: all known labels.
        logits: [n, C] calibrated, of models that were not trained on a label where there are such.
        trained: [n, C] whether the score of a known label is by a model that was trained on it.
        precision: of a completion; if it is below 80%, less likely labels are listed too.
    """
    labels, cells = known.dense(), known.cells
    answered = np.isin(cells.asked_or_not(), (CHOSEN, CONFIRMED))
    labels[cells.rows[answered], cells.columns[answered]] = 0
    likely = max(min(precision, 1 - UNLIKELY), 0.5)
    limit = math.log(likely / (1 - likely))
    rows, columns = np.nonzero((labels != 0) & (labels * logits < -limit))
    order = np.argsort(-np.abs(logits[rows, columns]), kind="stable")
    ids, names, suspects = known.ids, known.classes, []
    for i, j in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        score = float(expit(logits[i, j]))
        suspects.append(Suspect(ids[i], names[j], int(labels[i, j]), score, bool(trained[i, j])))
    return suspects


def find_doubtful(table: LabelTable, unfilled: Mask, logits: Scores) -> list[Doubtful]:
    """Unknown labels that are not filled in, those with a probability near one half first."""
    rows, columns = np.nonzero(unfilled)
    distance = np.abs(logits[rows, columns])
    order = np.argsort(distance, kind="stable")[:_MOST_DOUBTFUL]
    return [
        Doubtful(table.ids[i], table.classes[j], float(expit(logits[i, j])))
        for i, j in zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    ]


def share_wrong(suspects: list[Suspect]) -> float:
    """The share of the suspects that are wrong, as far as their scores can tell: an estimate."""
    return float(np.mean([max(one.score, 1 - one.score) for one in suspects])) if suspects else 0.0


def most_common(counts: NDArray[np.int64], totals: NDArray[np.int64]) -> int:
    """The position with the highest share, of those with more than one; -1 if there is none."""
    share = np.where(counts > 1, counts / np.maximum(totals, 1), -1.0)
    return int(np.argmax(share)) if len(share) and share.max() > 0 else -1
