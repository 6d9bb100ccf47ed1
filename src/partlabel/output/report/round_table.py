"""Pseudo-labels per round, as a table."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.judging.pseudo_label_rates import rates, ratio
from partlabel.learning.pseudo_labels import Tally

_MOST_WRONG = 3  # classes that are named


def round_table(
    tally: Tally, unknown: int, classes: list[str], percent: Callable[[float], str]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows: one row per round and one for all rounds together.

    Args:
        tally: the pseudo-labels of each round.
        unknown: the number of cells that were unknown before the first round.
        classes: the names of the classes.
        percent: writes a share in percent.
    """
    signs = [sign for sign in (0, 1) if tally.judged[:, sign].any()]
    header = ["round", "absent", "present", "labelled so far"]
    header += [f"{('absent', 'present')[sign]} and correct" for sign in signs]
    recalls = ("TP", "TN") if len(signs) == 2 else ()  # with one sign only they are 100 and 0
    header += [*recalls, "most often wrong"] if signs else []
    number = len(tally.given)
    parts = [(f"{tally.first + n}", slice(n, n + 1), slice(0, n + 1)) for n in range(number)]
    rows = []
    for name, part, so_far in [*parts, ("all", slice(None), slice(None))]:
        row = [name, *(f"{tally.given[part, sign].sum():,}" for sign in (0, 1))]
        row.append(percent(tally.given[so_far].sum() / max(unknown, 1)))
        row += [percent(ratio(tally.right[part, s], tally.judged[part, s])) for s in signs]
        if signs:
            figures = rates(tally.of_rounds(part))
            row += [percent(figures.get(rate, float("nan"))) for rate in recalls]
            wrong = (tally.judged[part] - tally.right[part]).sum(axis=(0, 1))
            row.append(_worst(wrong, classes))
        rows.append(row)
    return header, rows


def _worst(wrong: NDArray[Any], classes: list[str]) -> str:
    """The classes with the most wrong labels [C]."""
    order = np.argsort(-wrong, kind="stable")[:_MOST_WRONG]
    return ", ".join(f"{classes[j]} {wrong[j]:,}" for j in order if wrong[j]) or "-"
