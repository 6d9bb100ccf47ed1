"""Known labels that look wrong, and unknown labels that are worth asking for."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.judging.completion.held_labels import Mask, Scores
from partlabel.labels import CHOSEN, CONFIRMED, LabelTable
from partlabel.metrics.label_noise import chance_wrong
from partlabel.training.reserving import evidence

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
    labels = _unasked(known)
    rows, columns = np.nonzero((labels != 0) & (labels * logits < -_limit(precision)))
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


def estimate_wrong(
    known: LabelTable, logits: Scores, honest: Mask, precision: float
) -> ShareWrong | None:
    """The share of suspects that are wrong: an estimate. None if it cannot be told from scores.

    Args:
        known, logits, precision: as in :func:`find_suspects`.
        honest: [n, C] where logits are calibrated, and of models that were not trained on a label.
    """
    labels, cells = np.where(honest, evidence(known).dense(), 0), known.cells
    origins = np.zeros(labels.shape, dtype=np.int64)
    origins[cells.rows, cells.columns] = cells.origins_or_none()
    rows, columns = np.nonzero(labels)
    values, scores = labels[rows, columns], logits[rows, columns]
    listed = (values * scores < -_limit(precision)) & (_unasked(known)[rows, columns] != 0)
    if not listed.any():
        return None
    _, codes = np.unique(origins[rows, columns], return_inverse=True)
    chance = chance_wrong(scores, values, rows, codes.reshape(-1).astype(np.int64))
    return None if chance is None else ShareWrong(float(chance[listed].mean()), int(listed.sum()))


def _unasked(known: LabelTable) -> NDArray[np.int8]:
    """[n, C] the known labels, without those that a human gave because a model asked."""
    labels, cells = known.dense(), known.cells
    answered = np.isin(cells.asked_or_not(), (CHOSEN, CONFIRMED))
    labels[cells.rows[answered], cells.columns[answered]] = 0
    return labels


def _limit(precision: float) -> float:
    """The logit against a label from which on it is listed."""
    likely = max(min(precision, 1 - UNLIKELY), 0.5)
    return math.log(likely / (1 - likely))


def most_common(counts: NDArray[np.int64], totals: NDArray[np.int64]) -> int:
    """The position with the highest share, of those with more than one; -1 if there is none."""
    share = np.where(counts > 1, counts / np.maximum(totals, 1), -1.0)
    return int(np.argmax(share)) if len(share) and share.max() > 0 else -1
