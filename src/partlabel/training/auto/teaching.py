"""Labels that one model gives to another: its most likely unknown labels count as present."""

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import PRESENT, LabelTable
from partlabel.labels.cells import from_triples


def with_likely_positives(
    table: LabelTable, logits: NDArray[np.float32], evidence: LabelTable, share: float
) -> LabelTable:
    """A table in which the unknown labels with the highest logits of a class are present.

    The present labels that are expected among the unknown ones of a class follow from the share of
    its labels that are present in ``evidence``. A class without known absences there gets none.

    Args:
        table: labels of n images.
        logits: [n, C] of the teacher.
        evidence: labels of both kinds, whose shares of present labels are taken for the truth.
        share: of the expected present labels, how many to add.

    >>> table = LabelTable(["a", "b", "c", "d"], ["cat"], [[0], [0], [0], [-1]])
    >>> evidence = LabelTable(["x", "y"], ["cat"], [[1], [-1]])
    >>> logits = np.array([[0.1], [2.0], [1.0], [3.0]], dtype=np.float32)
    >>> with_likely_positives(table, logits, evidence, 0.5).dense().ravel().tolist()
    [0, 1, 0, -1]
    """
    values = table.dense()
    for column, number in enumerate(missing_positives(table, evidence)):
        unknown = np.flatnonzero(values[:, column] == 0)
        order = np.argsort(-logits[unknown, column], kind="stable")
        values[unknown[order[: round(share * number)]], column] = PRESENT
    rows, columns = np.nonzero(values)
    return table.with_cells(from_triples(rows, columns, values[rows, columns], table.shape))


def missing_positives(table: LabelTable, evidence: LabelTable) -> NDArray[np.float64]:
    """[C] the expected number of present labels among the unknown ones."""
    counts, judged = table.counts(), evidence.counts()
    known = judged.present + judged.absent
    rate = np.where(judged.absent > 0, judged.present / np.maximum(known, 1), 0.0)
    expected = rate * len(table) - counts.present
    return np.asarray(np.clip(expected, 0, counts.unknown), dtype=np.float64)
