"""How many present labels are among the highest scores of their image."""

import numpy as np
from numpy.typing import ArrayLike

from partlabel.labels import PRESENT, LabelTable
from partlabel.metrics.evaluation import checked

_CELLS = 1 << 22  # scores that are compared at a time, to bound memory


def top_recall(scores: ArrayLike, labels: ArrayLike | LabelTable, k: int = 3) -> float:
    """The share of present labels whose class is among the k highest scores of their image.

    All classes are ranked, also those whose label is unknown. Ties are broken at random, and the
    result is the expected value. NaN if no label is known to be present.

    Args:
        scores: [n, C], higher means more likely present.
        labels: [n, C] in {-1, 0, 1}, or a table with these rows.
        k: number of classes per image.

    >>> top_recall([[0.9, 0.8, 0.1]], [[1, 0, 1]], k=2)
    0.5
    """
    score, label = checked(scores, labels)
    image, column = np.nonzero(label == PRESENT)
    total, step = 0.0, max(_CELLS // max(score.shape[1], 1), 1)
    for start in range(0, len(image), step):
        part = slice(start, start + step)
        rows = score[image[part]]
        own = score[image[part], column[part]][:, None]
        above = (rows > own).sum(axis=1)
        equal = (rows == own).sum(axis=1)  # counts the label itself
        total += float(np.clip((k - above) / equal, 0, 1).sum())
    return total / len(image) if len(image) else float("nan")
