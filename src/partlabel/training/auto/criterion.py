"""The criterion by which candidates are compared, and how far it can be trusted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partlabel.metrics import evaluate
from partlabel.metrics.positive_ranking import has_enough, positive_auc

_LEAST = 3  # labels of each kind that a class needs to have an average precision
Labels = NDArray[np.int8]


@dataclass(frozen=True)
class Criterion:
    """A figure per class, from 0 to 1, of logits on labels that were not trained on.

    Args:
        labels: [n, C] the labels to compare on.
        held_out: the images that they belong to, in words.
    """

    labels: Labels
    held_out: str

    @property
    def enough(self) -> NDArray[np.bool_]:
        """[C] whether a class has enough labels of both kinds for an average precision."""
        return has_enough(self.labels, _LEAST)

    @property
    def has_absent(self) -> bool:
        """Whether average precision can be measured, for at least half of the classes."""
        return bool(self.enough.mean() >= 0.5)

    @property
    def name(self) -> str:
        """The name of the criterion, for tables."""
        return "mAP" if self.has_absent else "AUC of positives"

    def __call__(
        self, logits: NDArray[np.float32], rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Figures [C] of logits [n, C], NaN for a class that cannot be compared.

        Args:
            logits: of all images, or of ``rows`` alone.
            rows: the images that logits are of; None for all.
        """
        labels = self.labels if rows is None else self.labels[rows]
        if self.has_absent:
            figures = evaluate(logits, labels).per_class["AP"]
            return np.where(self.enough, figures, np.nan)
        return positive_auc(logits, labels)

    def describe(self) -> str:
        """What is compared, and what it is worth."""
        classes = self.labels.shape[1]
        if self.has_absent:
            number = int(self.enough.sum())
            return (
                f"comparing by mAP on the known labels of {self.held_out}, over {number} of "
                f"{classes} classes"
            )
        return (
            f"comparing by how high the known positives of {self.held_out} rank among all images "
            "(AUC), since too few labels are known to be absent. This is fair if known positives "
            "are a random sample of all. A few hundred fully labelled images, in a split "
            "'holdout', are a better judge"
        )


def mean(figures: NDArray[np.float64]) -> float:
    """The mean over the classes that have a figure; NaN if none has."""
    return float(np.nanmean(figures)) if (~np.isnan(figures)).any() else float("nan")
