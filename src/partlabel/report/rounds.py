"""Pseudo-labels round by round: how many there are, and how many of them are true."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.errors import FileError
from partlabel.labels import LabelTable
from partlabel.memory import LabelMemory, Tally
from partlabel.run import Run

_MOST_WRONG = 3  # classes that are named


def read_tally(run: Run, training: LabelTable, truth: LabelTable | None) -> Tally | None:
    """What the rounds that were completed gave; None for a run without pseudo-labels."""
    folder = run.folder / "memory"
    if not (folder / "shape.json").is_file():
        return None
    memory = LabelMemory.open(folder)
    if (memory.images, memory.classes) != training.shape:
        raise FileError(folder, "holds pseudo-labels for other labels than the run's")
    completed = run.last_state()["method"].get("round", 0)
    return memory.tally(int(completed), truth)


def rounds_before(run: Run) -> int:
    """How many rounds were over when the epoch was that is kept."""
    kept = run.record.best_epoch
    return sum("pseudo_labels" in line for line in run.history() if line["epoch"] <= kept)


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> float:
    """A share of two sums; NaN of nothing."""
    return float(part.sum() / whole.sum()) if whole.sum() else float("nan")


def round_table(
    tally: Tally, unknown: int, classes: list[str], percent: Callable[[float], str]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows, a row a round and one for all together.

    Args:
        tally: of ``rounds`` rounds.
        unknown: cells that were unknown before the first.
        percent: how a share is written.
    """
    signs = [sign for sign in (0, 1) if tally.judged[:, sign].any()]
    header = ["round", "absent", "present", "labelled so far"]
    header += [f"{('absent', 'present')[sign]} and right" for sign in signs]
    header += ["most often wrong"] if signs else []
    numbers = len(tally.given)
    parts = [(f"{n + 1}", slice(n, n + 1), slice(0, n + 1)) for n in range(numbers)]
    rows = []
    for name, here, before in [*parts, ("all", slice(None), slice(None))]:
        row = [name, *(f"{tally.given[here, sign].sum():,}" for sign in (0, 1))]
        row.append(percent(tally.given[before].sum() / max(unknown, 1)))
        row += [percent(ratio(tally.right[here, s], tally.judged[here, s])) for s in signs]
        if signs:
            wrong = (tally.judged[here] - tally.right[here]).sum(axis=(0, 1))
            row.append(_worst(wrong, classes))
        rows.append(row)
    return header, rows


def _worst(wrong: NDArray[Any], classes: list[str]) -> str:
    order = np.argsort(-wrong, kind="stable")[:_MOST_WRONG]
    return ", ".join(f"{classes[j]} {wrong[j]:,}" for j in order if wrong[j]) or "-"
