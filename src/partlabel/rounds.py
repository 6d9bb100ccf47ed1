"""The pseudo-labels of a run: how many there are, and how many of them are true."""

from typing import Any

from numpy.typing import NDArray

from partlabel.errors import FileError
from partlabel.labels import LabelTable
from partlabel.memory import LabelMemory, Tally
from partlabel.methods.pseudo import find_memory
from partlabel.run import Run
from partlabel.scoring import aligned
from partlabel.training import by_humans, task_of


def read_tally(run: Run, training: LabelTable, truth: LabelTable | None) -> Tally | None:
    """What the rounds that were completed gave; None for a run without pseudo-labels."""
    if not any(run.folder.glob("memory*/shape.json")):
        return None
    completed = run.last_state()["method"].get("pseudo.round", 0)
    folder = find_memory(run.folder, int(completed))
    if folder is None:
        return None
    memory = LabelMemory.open(folder)
    if (memory.images, memory.classes) != training.shape:
        raise FileError(folder, "holds pseudo-labels for other labels than the run's")
    return memory.tally(int(completed), truth)


def rounds_before(run: Run) -> int:
    """How many rounds were over when the epoch was that is kept."""
    kept = run.record.best_epoch
    return sum("pseudo_labels" in line for line in run.history() if line["epoch"] <= kept)


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> float:
    """A share of two sums; NaN of nothing."""
    return float(part.sum() / whole.sum()) if whole.sum() else float("nan")


def judge(run: Run, truth: LabelTable) -> dict[str, float]:
    """How many pseudo-labels a run gave and which shares are right; nothing if it gives none."""
    training = task_of(run).labels
    tally = read_tally(run, training, aligned(by_humans(truth), training))
    if tally is None:
        return {}
    figures = {"pseudo_labels": float(tally.given.sum())}
    for sign, name in enumerate(("absent", "present")):
        if tally.judged[:, sign].any():
            right = ratio(tally.right[:, sign], tally.judged[:, sign])
            figures[f"pseudo_{name}_accuracy"] = right
    return figures
