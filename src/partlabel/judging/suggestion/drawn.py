"""Questions drawn at random, whose answers test the present labels that a run would fill in.

Answers to questions that a model chose are not a random sample. So some questions are drawn at
random from a zone: the unknown cells that the run is confident are present. Every cell has one
random number for good, and the cells of the zone with the lowest numbers are asked for. So answers
that an earlier run asked for count again, as far as they are in the zone of this run and below the
lowest number that has no answer. Whether a cell is asked for does not depend on its label. The run
must not be trained on these answers: see ``selection.without_drawn``.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partlabel.base.randomness import keys
from partlabel.judging.scoring import Scored
from partlabel.judging.suggestion.by_class import CellsByClass
from partlabel.judging.suggestion.orderings import draws_of
from partlabel.labels import PRESENT, RANDOM, LabelTable
from partlabel.metrics.calibration import logits as logits_of
from partlabel.metrics.ranked_sample import largest_passing

_PURPOSE = "drawn to test"
_SHARE = 0.5  # of the labels that are expected to be present: those that may be filled in

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Zone:
    """The cells that a run is confident are present, the most confident first.

    Args:
        rows, columns: [m] the cells.
        logits: [m]
        draws: [m] their random numbers.
        answers: [m] 1 or -1 for a cell that was drawn and answered, else 0.
        known: [m] 1 or -1 for a cell with a label, however it was asked for, else 0.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    logits: Floats
    draws: Floats
    answers: NDArray[np.int8]
    known: NDArray[np.int8]

    def with_answers(self, labels: LabelTable) -> "Zone":
        """The same cells with the answers that later labels of the same images and classes have.

        The zone of a run stays as it was when the run asked, whatever else is known by now.
        """
        answers, known = np.zeros_like(self.answers), np.zeros_like(self.known)
        by_class = CellsByClass(labels)
        for column in range(len(labels.classes)):
            values, drawn = _labels_of(labels, by_class, column)
            own = np.flatnonzero(self.columns == column)
            answers[own] = np.where(drawn, values, 0)[self.rows[own]]
            known[own] = values[self.rows[own]]
        return replace(self, answers=answers, known=known)

    def next_draws(self, number: int) -> tuple[NDArray[np.int64], float]:
        """The positions of the next cells to ask for, and the probability that a cell is drawn."""
        order = np.argsort(self.draws, kind="stable")
        fresh = order[self.answers[order] == 0]
        probability = float(self.draws[fresh[number]]) if number < len(fresh) else 1.0
        return fresh[:number], probability


@dataclass(frozen=True)
class DrawnGuarantee:
    """What answers to questions drawn at random show about present labels.

    Args:
        threshold: the least logit of a cell that is filled in; infinite if none is.
        filled: number of unknown cells at or above it.
        tested, right: answers at or above it, and how many of them are present.
    """

    threshold: float = float("inf")
    filled: int = 0
    tested: int = 0
    right: int = 0


def find_zone(scored: Scored, *, anywhere: bool = False) -> Zone:
    """The most confident of the cells that are unknown, or drawn.

    There are half as many of them as the scores expect to be present, however confident the model
    is. With ``anywhere``, the zone has all such cells.
    """
    table = scored.table
    images, classes = keys(table.ids), keys(table.classes)
    parts, expected, by_class = [], 0.0, CellsByClass(table)
    for column in range(len(table.classes)):
        known, drawn = _labels_of(table, by_class, column)
        rows = np.flatnonzero(scored.readable & ((known == 0) | drawn))
        scores = scored.scores[rows, column]
        expected += float(scores.sum())
        draws = draws_of(_PURPOSE, images[rows], classes[column : column + 1])
        answers = np.where(drawn, known, 0)[rows].astype(np.int8)
        parts.append((rows, np.full(len(rows), column), logits_of(scores), draws, answers))
    rows, columns, logits, draws, answers = (np.concatenate(p) for p in zip(*parts, strict=True))
    size = len(logits) if anywhere else round(_SHARE * expected)
    inside = np.argsort(-logits, kind="stable")[:size]
    return Zone(
        rows[inside],
        columns[inside],
        logits[inside],
        draws[inside],
        answers[inside],
        known=answers[inside],
    )


def _labels_of(
    table: LabelTable, by_class: CellsByClass, column: int
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """[n] the labels of a class, and whether they answer a question drawn at random."""
    cells, images = table.cells, len(table)
    own = by_class.positions(column)
    rows = by_class.rows[own]
    labels, drawn = np.zeros(images, dtype=np.int8), np.zeros(images, dtype=np.bool_)
    labels[rows] = cells.values[own]
    drawn[rows] = cells.asked_or_not()[own] == RANDOM
    return labels, drawn


def guarantee_of(zone: Zone, precision: float) -> DrawnGuarantee:
    """How far down the zone its present labels have a precision, with a confidence of 95%."""
    unanswered = zone.draws[zone.answers == 0]
    lowest = unanswered.min() if len(unanswered) else 1.0
    sampled = np.flatnonzero((zone.answers != 0) & (zone.draws < lowest))
    to_show = precision_to_show(zone, precision)[sampled]
    passed = largest_passing(zone.answers[sampled] == PRESENT, precision, to_show)
    if not passed:
        return DrawnGuarantee()
    threshold = float(zone.logits[sampled[passed - 1]])
    inside = zone.logits >= threshold
    tested = sampled[inside[sampled]]
    return DrawnGuarantee(
        threshold,
        int(np.count_nonzero(inside & (zone.known == 0))),
        len(tested),
        int(np.count_nonzero(zone.answers[tested] == PRESENT)),
    )


def precision_to_show(zone: Zone, precision: float) -> Floats:
    """[m] the precision that the zone must have down to each rank, for the others to have theirs.

    Some labels of the zone are known because a model asked for them. They are not a random sample,
    but their errors can be counted: the others may have as many errors as the precision allows.
    """
    chosen = (zone.known != 0) & (zone.answers == 0)
    errors = np.cumsum(chosen & (zone.known != PRESENT))
    others = np.cumsum(~chosen)
    size = np.arange(1, len(chosen) + 1)
    return np.asarray(1 - ((1 - precision) * others + errors) / size)
