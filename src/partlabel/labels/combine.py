"""Several statements about the same cell become one: the rule for merging and for reading."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Conflict = Literal["error", "unknown", "ours", "theirs"]
CONFLICT_RULES = ("error", "unknown", "ours", "theirs")

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Combined:
    """Each cell once, in ascending order of its index.

    Args:
        cell: [m] the index of each cell.
        value: [m]
        score: [m]
        source: [m]
        clash: [m] whether the cell was stated both as present and as absent.
        order: [n] the statements grouped by cell, in their original order within a cell.
        starts: [m + 1] the statements about cell i are ``order[starts[i]:starts[i + 1]]``.
    """

    cell: Integers
    value: NDArray[np.int8]
    score: NDArray[np.float32]
    source: NDArray[np.int8]
    clash: NDArray[np.bool_]
    order: Integers
    starts: Integers


def combine(
    cell: Integers,
    value: NDArray[np.int8],
    score: NDArray[np.float32],
    source: NDArray[np.int8],
    conflict: Conflict = "unknown",
) -> Combined:
    """Combine statements about cells.

    Two statements clash if one says present and the other absent. The rule ``"ours"`` then takes
    the first statement with a value, ``"theirs"`` the last, and ``"unknown"`` neither. ``"error"``
    is like ``"unknown"``; the caller raises the error. Score and source are those of the statement
    taken.

    Without a clash, the source is human if any statement with a value is human, and the score is
    the first one stated.

    Args:
        cell: [n] the index of the cell that each statement is about.
        value, score, source: [n] the content of each statement.
        conflict: the rule for clashes.
    """
    order = np.argsort(cell, kind="stable")
    sorted_cell = cell[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = sorted_cell[1:] != sorted_cell[:-1]
    starts, group = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    sorted_value = value[order]
    present = np.bincount(group[sorted_value > 0], minlength=len(starts)) > 0
    absent = np.bincount(group[sorted_value < 0], minlength=len(starts)) > 0
    clash = present & absent

    def pick(eligible: NDArray[np.bool_], *, last: bool = False) -> Integers:
        """The first (or last) eligible statement of each cell; its first statement if none is."""
        candidates = np.flatnonzero(eligible)
        candidates = candidates if last else candidates[::-1]
        chosen = starts.copy()
        chosen[group[candidates]] = candidates  # the last assignment to a group wins
        return np.asarray(order[chosen])

    taken = pick(sorted_value != 0, last=conflict == "theirs")
    first_scored = pick(~np.isnan(score[order]))
    first_human = pick((sorted_value != 0) & (source[order] == 0))
    decided = value[taken]
    if conflict in ("unknown", "error"):
        decided = np.where(clash, 0, decided).astype(np.int8)
    return Combined(
        sorted_cell[starts],
        decided,
        np.where(clash, np.where(decided == 0, np.nan, score[taken]), score[first_scored]),
        np.where(clash, source[taken], np.minimum(source[taken], source[first_human])),
        clash,
        order,
        np.append(starts, len(order)),
    )
