"""Several statements about the same cells, as one: the rule behind merging and reading."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Conflict = Literal["error", "unknown", "ours", "theirs"]
CONFLICT_RULES = ("error", "unknown", "ours", "theirs")

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Combined:
    """Each cell once, in ascending order of place.

    Args:
        place: [m]
        value: [m]
        score: [m]
        source: [m]
        clash: [m] whether the cell was stated as present and as absent.
        order: [n] the statements by cell, and of a cell in the order given.
        starts: [m + 1] where in ``order`` the statements of each cell are.
    """

    place: Integers
    value: NDArray[np.int8]
    score: NDArray[np.float32]
    source: NDArray[np.int8]
    clash: NDArray[np.bool_]
    order: Integers
    starts: Integers


def combine(
    place: Integers,
    value: NDArray[np.int8],
    score: NDArray[np.float32],
    source: NDArray[np.int8],
    conflict: Conflict = "unknown",
) -> Combined:
    """Combine statements, each [n], about the cells at ``place``.

    Statements agree unless one says present and another absent; then ``"ours"`` takes the first
    that has a value, ``"theirs"`` the last, and ``"unknown"`` (like ``"error"``, which is the
    caller's to raise) neither. Where they agree, a human's word counts over a model's, and a score
    is taken from the first that has one; where they clash, both are those of what was taken.
    """
    order = np.argsort(place, kind="stable")
    ordered = place[order]
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(order) else np.ones(0, bool)
    starts, group = np.flatnonzero(new), np.cumsum(new) - 1
    values = value[order]
    number = len(starts)
    present = np.bincount(group[values > 0], minlength=number) > 0
    absent = np.bincount(group[values < 0], minlength=number) > 0
    clash = present & absent

    def pick(good: NDArray[np.bool_], *, last: bool = False) -> Integers:
        """Of each cell the first (or last) good statement, or else the first."""
        wanted = np.flatnonzero(good)
        wanted = wanted if last else wanted[::-1]
        chosen = starts.copy()
        chosen[group[wanted]] = wanted  # the last assignment to a group stays
        return np.asarray(order[chosen])

    taken = pick(values != 0, last=conflict == "theirs")
    scored = pick(~np.isnan(score[order]))
    by_human = pick((values != 0) & (source[order] == 0))
    decided = value[taken]
    if conflict in ("unknown", "error"):
        decided = np.where(clash, 0, decided).astype(np.int8)
    return Combined(
        ordered[starts],
        decided,
        np.where(clash, np.where(decided == 0, np.nan, score[taken]), score[scored]),
        np.where(clash, source[taken], np.minimum(source[taken], source[by_human])),
        clash,
        order,
        np.append(starts, len(order)),
    )
