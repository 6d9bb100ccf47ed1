"""Present labels filled in where answers to questions drawn at random show that they are right."""

import os
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from partlabel.base.errors import InputError, count
from partlabel.judging.suggestion.drawn import DrawnGuarantee, find_zone, guarantee_of
from partlabel.judging.suggestion.scored_training import score_training
from partlabel.labels import MODEL, RANDOM, Details, LabelTable
from partlabel.labels.cells import from_triples
from partlabel.labels.formats import write_labels
from partlabel.training.run import Run


@dataclass(frozen=True, repr=False)
class AnsweredCompletion:
    """Labels with the answers, and with present labels of the model.

    Args:
        table: all labels of the run, the answers, and the labels that are filled in.
        guarantee: what the answers show.
        precision: the precision that is guaranteed.
    """

    table: LabelTable
    guarantee: DrawnGuarantee
    precision: float

    def __repr__(self) -> str:
        return f"<AnsweredCompletion: {self.headline()}>"

    def headline(self) -> str:
        """How much is filled in, and what is guaranteed of it."""
        guarantee = self.guarantee
        if not guarantee.filled:
            return "filled in no label: the answers do not show the precision; ask for more"
        return (
            f"filled in {count(guarantee.filled, 'present label')}: {guarantee.right:,} of "
            f"{guarantee.tested:,} answers about such labels were present. At least "
            f"{100 * self.precision:g}% are correct, with a confidence of 95%"
        )

    def save(
        self, path: str | os.PathLike[str], format: str = "cells", *, excel_safe: bool = False
    ) -> None:
        """Write the table, in a format for label files.

        Args:
            excel_safe: whether names in a CSV file that a spreadsheet would run as formulas get an
                apostrophe.
        """
        write_labels(self.table, path, format, excel_safe=excel_safe)


def complete_from_answers(
    run: Run, answers: LabelTable, precision: float = 0.95
) -> AnsweredCompletion:
    """Fill in present labels of a run's training images. Known labels are never changed.

    Args:
        run: the run that asked the questions, with ``goal="promises"``.
        answers: answers to its questions, and maybe other labels.
        precision: share of the labels filled in that must be correct.
    """
    if not 0 < precision < 1:
        raise InputError(f"a precision of {precision:g}: must lie between 0 and 1")
    labels, scored = run.selection.labels, score_training(run)
    aligned = _aligned(answers, labels)
    images, names = scored.table.ids, scored.table.classes
    of_run = aligned.with_classes(names).subset(labels.ids.find(images))
    zone = find_zone(scored).with_answers(of_run)
    if not zone.answers.any():
        raise InputError(
            f"{run.folder}: none of the answers is to a question that was drawn at random for this "
            "run; ask with `partlabel suggest RUN --for promises`"
        )
    guarantee = guarantee_of(zone, precision)
    filled = (zone.logits >= guarantee.threshold) & (zone.known == 0)
    rows = labels.ids.find(images)[zone.rows[filled]]
    columns = labels.classes.find(names)[zone.columns[filled]]
    details = Details(
        scores=expit(zone.logits[filled]).astype(np.float32),
        sources=np.full(len(rows), MODEL, dtype=np.int8),
    )
    present = np.ones(len(rows), dtype=np.int8)
    by_model = labels.with_cells(from_triples(rows, columns, present, labels.shape, details))
    table = labels.merge(aligned, conflict="theirs").merge(by_model, conflict="ours")
    return AnsweredCompletion(table, guarantee, precision)


def _aligned(answers: LabelTable, labels: LabelTable) -> LabelTable:
    """The known labels of a table about the images and classes of another; the rest is dropped."""
    cells = answers.cells.where(answers.cells.values != 0)
    rows = labels.ids.find(answers.ids)[cells.rows]
    columns = labels.classes.find(answers.classes)[cells.columns]
    kept = (rows >= 0) & (columns >= 0)
    details = Details(asked=cells.asked_or_not()[kept])
    known = from_triples(rows[kept], columns[kept], cells.values[kept], labels.shape, details)
    if not (known.asked_or_not() == RANDOM).any():
        raise InputError(
            "the answers have no label that is marked as asked at random; keep the column 'asked' "
            "of the questions"
        )
    return labels.with_cells(known)
