"""The labels of a class that tell most about it, chosen as ``suggest`` chooses.

Shorter lists than those of ``suggest`` keep a board of 100,000 images below a fifth of a second.
"""

import numpy as np
from numpy.typing import NDArray

from partlabel.base.randomness import Keys, key, uniform
from partlabel.judging.suggestion.information import KnownCells, most_informative, posterior_of
from partlabel.judging.suggestion.orderings import ClassCells
from partlabel.metrics.calibration import logits
from partlabel.output.review.learner import Features

Rows = NDArray[np.int64]

_SAMPLE = 2000  # images that the mean length of the features is measured on
_KNOWN = 300  # known labels that are used: those that weigh most
_LISTS = 2000, 200  # labels whose variance is computed, and whose covariance is


class UnitFeatures:
    """Features of mean length 1, as the order by information needs them."""

    def __init__(self, features: Features) -> None:
        self.vectors = features.vectors
        sample = self.vectors[:: max(len(self.vectors) // _SAMPLE, 1)].astype(np.float32)
        self.scale = 1 / max(float(np.sqrt(np.mean(np.sum(sample**2, axis=1)))), 1e-12)

    def __call__(self, rows: Rows) -> NDArray[np.float32]:
        """[m, D] features of these rows [m]."""
        return self.vectors[rows].astype(np.float32) * np.float32(self.scale)


def most_useful(
    features: Features,
    scores: NDArray[np.float32],
    known: tuple[Rows, NDArray[np.bool_]],
    open_rows: Rows,
    image_keys: Keys,
    number: int,
) -> Rows:
    """The rows of a class to ask for, in the order of their choice.

    Args:
        features: of all images.
        scores: [n] of the class.
        known: rows with a label to learn from, and whether the class is present there.
        open_rows: rows that can be asked for.
        image_keys: [n] of the images; they decide between equals.
        number: of rows to choose.
    """
    if not len(open_rows):
        return open_rows
    unit, all_logits = UnitFeatures(features), logits(scores)
    rows, present = known
    labels = KnownCells(rows, np.where(present, 1, -1).astype(np.int8), all_logits[rows])
    draws = uniform(key("asked"), image_keys[open_rows])
    cells = ClassCells(0, open_rows, all_logits[open_rows], draws)
    posterior = posterior_of(labels, unit, _KNOWN)
    chosen = most_informative(cells, posterior, unit, min(number, len(open_rows)), lists=_LISTS)
    return open_rows[chosen.positions]
