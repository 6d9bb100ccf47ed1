"""The pseudo-labels of a run: how many there are, and how many of them are true."""

import math
from typing import Any

from numpy.typing import NDArray

from partlabel.base.errors import FileError
from partlabel.judging.scoring import aligned
from partlabel.labels import LabelTable
from partlabel.learning.pseudo_labels import LabelMemory, Tally
from partlabel.learning.pseudo_labels.state import find_memory
from partlabel.training.run import Run
from partlabel.training.selection import by_humans
from partlabel.training.train import task_of


def read_tally(run: Run, training: LabelTable, truth: LabelTable | None) -> Tally | None:
    """What the rounds that were completed gave, as far as that was not replaced by later ones.

    None for a run without pseudo-labels.
    """
    if not any(run.folder.glob("memory*/shape.json")):
        return None
    completed = run.last_state()["method"].get("pseudo.round", 0)
    folder = find_memory(run.folder, int(completed))
    if folder is None:
        return None
    memory = LabelMemory.open(folder)
    if (memory.images, memory.classes) != training.shape:
        raise FileError(folder, "holds pseudo-labels for other labels than the run's")
    tally = memory.tally(int(completed), truth)
    # where each round decides anew, its memory holds no other
    return tally if folder.name == "memory" else tally.of_rounds(slice(int(completed) - 1, None))


def rounds_before(run: Run) -> int:
    """How many rounds were over when the epoch was that is kept."""
    kept = run.record.best_epoch
    return sum("pseudo_labels" in line for line in run.history() if line["epoch"] <= kept)


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> float:
    """A share of two sums; NaN of nothing."""
    return float(part.sum() / whole.sum()) if whole.sum() else float("nan")


def rates(tally: Tally) -> dict[str, float]:
    """How right the labels of a tally are, as far as their truth is known.

    ``pseudo_absent_accuracy`` and ``pseudo_present_accuracy`` are the shares of labels that are
    right, among those given as absent and as present; ``TN`` and ``TP`` among those that truly are,
    which tells something only if labels of both signs were given.
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
    """How many pseudo-labels a run gave and how right they are; nothing if it gives none."""
    training = task_of(run).labels
    tally = read_tally(run, training, aligned(by_humans(truth), training))
    if tally is None:
        return {}
    given, cells = float(tally.given.sum()), max(math.prod(training.shape), 1)
    share = training.known + given / cells
    return {"pseudo_labels": given, "label_share": share, **rates(tally)}
