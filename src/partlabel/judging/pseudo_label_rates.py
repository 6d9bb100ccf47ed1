"""The pseudo-labels of a run: how many there are, and how many of them are correct."""

import math
from typing import Any

from numpy.typing import NDArray

from partlabel.judging.scoring import aligned
from partlabel.labels import LabelTable
from partlabel.learning.method import PSEUDO_LABELS
from partlabel.learning.pseudo_labels import Tally
from partlabel.training.run import Run
from partlabel.training.run_split import by_humans


def read_tally(run: Run, truth: LabelTable | None) -> Tally | None:
    """The pseudo-labels of a run by round, as far as later rounds did not replace them.

    None for a run without pseudo-labels.
    """
    labels = run.artifacts().pseudo_labels
    if labels is None or not int(labels.round):
        return None
    return labels.tally(truth)


def rounds_before(run: Run) -> int:
    """The number of rounds of pseudo-labels up to the epoch that is kept."""
    kept = run.record.best_epoch
    return sum(PSEUDO_LABELS in line for line in run.history() if line["epoch"] <= kept)


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> float:
    """The ratio of two sums; NaN if the second is 0."""
    return float(part.sum() / whole.sum()) if whole.sum() else float("nan")


def rates(tally: Tally) -> dict[str, float]:
    """How many labels of a tally are correct, where the truth is known.

    ``pseudo_absent_accuracy`` and ``pseudo_present_accuracy`` are shares of the labels that were
    given as absent and as present. ``TN`` and ``TP`` are shares of the labels that truly are absent
    and present; they are only informative if labels of both signs were given.
    """
    judged, right = tally.judged.sum(axis=(0, 2)), tally.right.sum(axis=(0, 2))
    wrong = judged - right
    figures = {}
    for sign, (name, rate) in enumerate((("absent", "TN"), ("present", "TP"))):
        if judged[sign]:
            figures[f"pseudo_{name}_accuracy"] = right[sign] / judged[sign]
        truly = right[sign] + wrong[1 - sign]
        if truly and judged.all():
            figures[rate] = right[sign] / truly
    return {name: float(value) for name, value in figures.items()}


def judge(run: Run, truth: LabelTable) -> dict[str, float]:
    """How many pseudo-labels a run gave and how many are correct; nothing if it gives none."""
    training = run.selection.training
    tally = read_tally(run, aligned(by_humans(truth), training))
    if tally is None:
        return {}
    number, cells = float(tally.given.sum()), max(math.prod(training.shape), 1)
    share = training.known + number / cells
    return {PSEUDO_LABELS: number, "label_share": share, **rates(tally)}
