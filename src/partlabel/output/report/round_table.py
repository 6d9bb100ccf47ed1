"""Pseudo-labels round by round, as a table."""

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
    """Header and rows, a row a round and one for all together.

    Args:
        tally: of ``rounds`` rounds.
        unknown: cells that were unknown before the first.
        percent: how a share is written.
    """
    signs = [sign for sign in (0, 1) if tally.judged[:, sign].any()]
    header = ["round", "absent", "present", "labelled so far"]
    header += [f"{('absent', 'present')[sign]} and right" for sign in signs]
    recalls = ("TP", "TN") if len(signs) == 2 else ()  # of one sign only they are 100 and 0
    header += [*recalls, "most often wrong"] if signs else []
    numbers = len(tally.given)
    parts = [(f"{tally.first + n}", slice(n, n + 1), slice(0, n + 1)) for n in range(numbers)]
    rows = []
    for name, here, before in [*parts, ("all", slice(None), slice(None))]:
        row = [name, *(f"{tally.given[here, sign].sum():,}" for sign in (0, 1))]
        row.append(percent(tally.given[before].sum() / max(unknown, 1)))
        row += [percent(ratio(tally.right[here, s], tally.judged[here, s])) for s in signs]
        if signs:
            found = rates(tally.of_rounds(here))
            row += [percent(found.get(name, float("nan"))) for name in recalls]
            wrong = (tally.judged[here] - tally.right[here]).sum(axis=(0, 1))
            row.append(_worst(wrong, classes))
        rows.append(row)
    return header, rows


def _worst(wrong: NDArray[Any], classes: list[str]) -> str:
    order = np.argsort(-wrong, kind="stable")[:_MOST_WRONG]
    return ", ".join(f"{classes[j]} {wrong[j]:,}" for j in order if wrong[j]) or "-"
