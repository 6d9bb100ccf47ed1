"""Several statements about the same cell become one: the rule for merging and for reading."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from partlabel.labels.cells import CONFIRMED, MODEL, NOT_ASKED, RANDOM, Details

Conflict = Literal["error", "unknown", "ours", "theirs"]
CONFLICT_RULES = ("error", "unknown", "ours", "theirs")

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Combined:
    """Each cell once, in ascending order of its index.

    Args:
        cell: [m] the index of each cell.
        value: [m]
        details: of each cell.
        clash: [m] whether the cell was stated both as present and as absent.
        overruled: [m] whether a human contradicts a model about the cell.
        order: [n] the statements grouped by cell, in their original order within a cell.
        starts: [m + 1] the statements about cell i are ``order[starts[i]:starts[i + 1]]``.
        taken: [m] the statement that each cell is taken from.
    """

    cell: Integers
    value: NDArray[np.int8]
    details: Details
    clash: Mask
    overruled: Mask
    order: Integers
    starts: Integers
    taken: Integers


def combine(
    cell: Integers,
    value: NDArray[np.int8],
    details: Details,
    conflict: Conflict = "unknown",
    tags: Mask | None = None,
) -> Combined:
    """Combine statements about cells.

    Where a human states a value, statements of models about the cell do not count. Two of the
    other statements clash if one says present and the other absent. The rule ``"ours"`` then takes
    the first value, ``"theirs"`` the last, and ``"unknown"`` neither. ``"error"`` is like
    ``"unknown"``; the caller raises the error.

    Of the statements that agree with the value of the cell, one is taken, and its source, origin
    and ``asked`` become those of the cell. It is one that was confirmed, else one that was not
    asked for, else one that was asked for at random, else one that was asked for by choice. Of
    several such statements it is the first; with the rule ``"theirs"``, the last. So a label that
    anybody gave unasked stays a label like others, whoever else was asked for it. Of labels that
    nobody asked for, a tag goes first: the label would be known without the other statements.

    The score of a cell is the first one stated; after a clash, that of the statement taken.

    Args:
        cell: [n] the index of the cell that each statement is about.
        value, details: [n] the content of each statement.
        conflict: the rule for clashes.
        tags: [n] whether a statement is from an origin that notes presences only of its class.
    """
    statements = _Statements(cell, value, details)
    clash = statements.clash()
    last = conflict == "theirs"
    taken = statements.pick(statements.value != 0, last=last)
    decided = statements.value[taken]
    agrees = (statements.value != 0) & (statements.value == decided[statements.group])
    for level in _preferred(details, tags, len(cell)):
        taken = statements.pick(agrees & level[statements.order], last=last, otherwise=taken)
    overruled = statements.overruled(decided)
    if conflict in ("unknown", "error"):
        decided = np.where(clash, 0, decided).astype(np.int8)
    chosen = statements.details.take(taken)
    if chosen.scores is not None:
        scores = statements.details.filled("scores", len(cell))
        first = scores[statements.pick(~np.isnan(scores))]
        after_clash = np.where(decided == 0, np.nan, chosen.scores)
        scores = np.where(clash, after_clash, first).astype(np.float32)
        chosen = replace(chosen, scores=scores)
    return Combined(
        statements.cell,
        decided,
        chosen,
        clash,
        overruled,
        statements.order,
        np.append(statements.starts, len(cell)),
        np.asarray(statements.order[taken]),
    )


def _preferred(details: Details, tags: Mask | None, number: int) -> list[Mask]:
    """Which statements [n] are taken before others that agree; the later, the more so."""
    asked = np.full(number, NOT_ASKED) if details.asked is None else details.asked
    levels = [] if details.asked is None else [asked == RANDOM, asked == NOT_ASKED]
    levels += [] if tags is None else [tags & (asked == NOT_ASKED)]
    return levels + ([] if details.asked is None else [asked == CONFIRMED])


class _Statements:
    """Statements grouped by cell; positions count in this order.

    Attributes:
        order: [n] the original position of each statement.
        group: [n] the group of each statement.
        starts: [m] the first statement of each group.
        cell: [m] the cell of each group.
        value: [n] 0 for a model's statement about a cell that a human knows.
    """

    def __init__(self, cell: Integers, value: NDArray[np.int8], details: Details) -> None:
        self.order = np.argsort(cell, kind="stable")
        sorted_cell = cell[self.order]
        is_first = np.ones(len(cell), dtype=np.bool_)
        is_first[1:] = sorted_cell[1:] != sorted_cell[:-1]
        self.starts = np.flatnonzero(is_first)
        self.group = np.cumsum(is_first) - 1
        self.cell = sorted_cell[self.starts]
        self.stated = self.value = value[self.order]
        self.details = details.take(self.order)
        if self.details.sources is not None:
            by_model = self.details.sources == MODEL
            ignored = by_model & self.any((self.stated != 0) & ~by_model)[self.group]
            self.value = np.where(ignored, 0, self.stated).astype(np.int8)

    def any(self, mask: Mask) -> Mask:
        """[m] whether the mask is true for some statement of each group."""
        return np.asarray(np.bincount(self.group[mask], minlength=len(self.starts)) > 0)

    def clash(self) -> Mask:
        """[m] whether statements of each group contradict each other."""
        return self.any(self.value > 0) & self.any(self.value < 0)

    def overruled(self, decided: NDArray[np.int8]) -> Mask:
        """[m] whether a statement that does not count differs from the value of the cell."""
        if self.value is self.stated:
            return np.zeros(len(self.starts), dtype=np.bool_)
        ignored = (self.value != self.stated) & (self.stated != decided[self.group])
        return self.any(ignored)

    def pick(
        self, eligible: Mask, *, last: bool = False, otherwise: Integers | None = None
    ) -> Integers:
        """[m] the first (or last) eligible statement of each group.

        For a group without any it is the position in ``otherwise``, or else its first statement.
        """
        candidates = np.flatnonzero(eligible)
        candidates = candidates if last else candidates[::-1]
        chosen = (self.starts if otherwise is None else otherwise).copy()
        chosen[self.group[candidates]] = candidates  # the last assignment to a group wins
        return chosen
