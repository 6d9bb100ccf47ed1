"""The criterion by which candidates are compared, and how far it can be trusted."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import LabelTable
from partlabel.metrics import evaluate
from partlabel.metrics.positive_ranking import has_enough, image_ranks

_LEAST = 3  # labels of each kind that a class needs to have an average precision
_ENOUGH = 0.5  # share of the classes that must have so many
_MORE = 2  # times as many images with present labels only as by chance are far more
_SEVERAL = 0.1  # share of the labelled images that have present labels only, at least
Labels = NDArray[np.int8]


@dataclass(frozen=True)
class Criterion:
    """Figures from 0 to 1 of logits on labels that were not trained on.

    Args:
        labels: [n, C] the labels to compare on.
        held_out: the images that they belong to, in words.
    """

    labels: Labels
    held_out: str

    @cached_property
    def enough(self) -> NDArray[np.bool_]:
        """[C] whether a class has enough labels of both kinds for an average precision."""
        return has_enough(self.labels, _LEAST)

    @cached_property
    def has_absent(self) -> bool:
        """Whether average precision can be measured, for at least half of the classes."""
        return bool(self.enough.mean() >= _ENOUGH)

    @property
    def name(self) -> str:
        """The name of the criterion, for tables."""
        return "mAP" if self.has_absent else "rank of positives"

    def __call__(
        self, logits: NDArray[np.float32], rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Figures of logits [n, C], NaN for what cannot be compared.

        With known absences these are average precisions [C]. Without them there are two figures:
        the mAP if all unknown labels were absent, and the mean rank of known positives among the
        classes of their image.

        Args:
            logits: of all images, or of ``rows`` alone.
            rows: the images that logits are of; None for all.
        """
        labels = self.labels if rows is None else self.labels[rows]
        if self.has_absent:
            figures = evaluate(logits, labels).per_class["AP"]
            return np.where(self.enough, figures, np.nan)
        assumed = evaluate(logits, np.where(labels > 0, 1, -1)).per_class["AP"]
        return np.array([mean(assumed), mean(image_ranks(logits, labels))])

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
            f"comparing by how high the known positives of {self.held_out} rank among other images "
            "and other classes, since too few labels are known to be present or absent in most "
            "classes. The choice may cost about a point of mAP. A few hundred fully labelled "
            "images, in a split 'holdout', are a better judge"
        )


def fairly_known(table: LabelTable) -> LabelTable:
    """The known labels from which it can be told how many are present.

    If far more images than by chance have present labels only, as images with one tag each, and
    others have labels of both kinds, then the labels of the first are left out: beside the others,
    they would make all classes look frequent. If the others are too few to compare on, all labels
    are kept.

    >>> table = LabelTable("abcd", ["cat", "dog"], [[1, 0], [0, 1], [1, 0], [1, -1]])
    >>> fairly_known(table).dense().tolist()  # one image with absent labels is not enough
    [[1, 0], [0, 1], [1, 0], [1, -1]]
    """
    values = table.dense()
    known = np.count_nonzero(values, axis=1)
    one_sided = (values > 0).any(axis=1) & ~(values < 0).any(axis=1)
    labelled = known[known > 0]
    share = np.count_nonzero(values > 0) / max(int(known.sum()), 1)
    by_chance = float((share**labelled).sum())  # if present labels were spread at random
    if one_sided.sum() <= max(_MORE * by_chance, _SEVERAL * len(labelled)):
        return table
    values[one_sided] = 0
    if has_enough(values, _LEAST).mean() < _ENOUGH:
        return table
    cells, kept = table.cells, np.logical_not(one_sided)
    return table.with_cells(cells.where(kept[cells.rows]))


def mean(figures: NDArray[np.float64]) -> float:
    """The mean over what has a figure; NaN if nothing has."""
    return float(np.nanmean(figures)) if (~np.isnan(figures)).any() else float("nan")
