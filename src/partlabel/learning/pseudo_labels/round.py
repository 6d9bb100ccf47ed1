"""A round of giving labels: which cells get one."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from partlabel.base.errors import JobError
from partlabel.learning.pseudo_labels.memory import KNOWN, LabelMemory

_ROWS = 256  # images that are cleared in one go
_TOGETHER = 16  # classes that a thread looks at in one go


class Round:
    """One round: either all scores first and then the choice, or image by image.

    What it gives replaces labels of this and later rounds, which an attempt that was cut short may
    have left.

    Args:
        memory: where labels are given.
        number: of the round, from 1 on.
    """

    def __init__(self, memory: LabelMemory, number: int) -> None:
        self.memory, self.number = memory, number
        self.scored = np.zeros(memory.images, dtype=np.bool_)

    def open_cells(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[B, C] which cells of these images had no label when this round began."""
        return self._free(self.memory.of_rows(self.memory.rounds, rows))

    def mark(self, rows: NDArray[np.int64], signs: NDArray[np.int8]) -> int:
        """Give labels [B, C] in {-1, 0, 1} to the open cells of images; returns how many.

        Call :meth:`end` after the last.
        """
        memory, given = self.memory, 0
        self.scored[rows] = True
        for block in range(memory.shape[0]):
            here = signs[:, block * memory.width : (block + 1) * memory.width]
            width = here.shape[1]
            rounds = memory.rounds[block, rows, :width]
            free = self._free(rounds)
            chosen = np.where(free, here, 0).astype(np.int16)
            memory.rounds[block, rows, :width] = np.where(free, chosen * self.number, rounds)
            kept = memory.values[block, rows, :width]
            memory.values[block, rows, :width] = np.where(chosen != 0, chosen > 0, kept)
            given += int(np.count_nonzero(chosen))
        return given

    def end(self) -> None:
        """Images that were not marked lose what an earlier attempt gave them; all is on disk."""
        missed = np.flatnonzero(~self.scored)
        for part in np.split(missed, range(_ROWS, len(missed), _ROWS)):
            self.mark(part, np.zeros((len(part), self.memory.classes), dtype=np.int8))
        self.memory.flush()

    def score(self, rows: NDArray[np.int64], scores: NDArray[Any]) -> None:
        """Note scores [B, C] of images; an image without scores gets no label in this round."""
        memory = self.memory
        if np.isnan(scores).any():
            raise JobError("scores of training images became NaN; a smaller --lr usually helps")
        self.scored[rows] = True
        for block in range(memory.shape[0]):
            columns = slice(block * memory.width, (block + 1) * memory.width)
            here = scores[:, columns]
            width = here.shape[1]
            free = self._free(memory.rounds[block, rows, :width])
            kept = memory.values[block, rows, :width]
            memory.values[block, rows, :width] = np.where(free, here, kept)

    def _free(self, rounds: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Cells that had no label when this round began."""
        later = (np.abs(rounds) >= self.number) & (rounds != KNOWN)
        return np.asarray((rounds == 0) | later)

    def give(
        self, lowest: ArrayLike, highest: ArrayLike = 0, values: tuple[float, float] | None = None
    ) -> int:
        """Give labels to the cells with the lowest and the highest scores of each class.

        Args:
            lowest: [C] how many cells of each class become absent; fewer if it runs out.
            highest: [C] how many of those left become present.
            values: of absent and of present labels; None for the score itself.

        Returns:
            How many labels were given. Among equal scores the first images are taken.
        """
        memory, given = self.memory, 0
        fewest = np.broadcast_to(np.asarray(lowest, dtype=np.int64), memory.classes)
        most = np.broadcast_to(np.asarray(highest, dtype=np.int64), memory.classes)
        for block in range(memory.shape[0]):
            columns = slice(block * memory.width, (block + 1) * memory.width)
            width = len(fewest[columns])
            rounds = memory.rounds[block, :, :width]
            free = self._free(rounds) & self.scored[:, None]
            chosen = choose(memory.values[block, :, :width], free, fewest[columns], most[columns])
            stale = self._free(rounds) & (rounds != 0)
            if stale.any():
                rounds[stale] = 0
            np.copyto(rounds, chosen * np.int16(self.number), where=chosen != 0)
            if values is not None:
                for sign, value in zip((-1, 1), values, strict=True):
                    memory.values[block, :, :width][chosen == sign] = value
            given += int(np.count_nonzero(chosen))
        memory.flush()
        return given


def choose(
    scores: NDArray[np.float32],
    free: NDArray[np.bool_],
    lowest: NDArray[np.int64],
    highest: NDArray[np.int64],
) -> NDArray[np.int8]:
    """The cells with the lowest (-1) and the highest (1) scores of each class.

    Args:
        scores: [N, C]
        free: [N, C] the cells that may be chosen.
        lowest, highest: [C] how many; the lowest come first where a class runs out.
    """
    chosen = np.empty(scores.shape, dtype=np.int8)
    left = np.count_nonzero(free, axis=0)

    def choose_in(start: int) -> None:
        """A few classes that lie side by side: whole lines of the cache, and few of them."""
        columns = slice(start, start + _TOGETHER)
        by_class = np.where(free[:, columns], scores[:, columns], np.inf).T.copy()
        marks = np.zeros(by_class.shape, dtype=np.int8)
        for mark, row, few, many, most in zip(
            marks, by_class, lowest[columns], highest[columns], left[columns], strict=True
        ):
            few = min(few, most)
            _take(row, few, mark, -1)
            if min(many, most - few) > 0:
                rest = np.where((mark == 0) & (row < np.inf), -row, np.inf)
                _take(rest, min(many, most - few), mark, 1)
        chosen[:, columns] = marks.T

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy lets other threads work meanwhile
        list(pool.map(choose_in, range(0, scores.shape[1], _TOGETHER)))
    return chosen


def _take(scores: NDArray[Any], number: int, chosen: NDArray[np.int8], sign: int) -> None:
    """Mark the lowest scores; among equal ones the first."""
    if number <= 0:
        return
    limit = np.partition(scores, number - 1)[number - 1]  # once: the rest is comparing
    below = scores < limit
    chosen += below.view(np.int8) * np.int8(sign)
    equal = np.flatnonzero(scores == limit)[: number - int(np.count_nonzero(below))]
    chosen[equal] = sign


def quota(total: NDArray[np.int64], share: float, number: int, rounds: int) -> NDArray[np.int64]:
    """How many cells a round gives labels to, so that after all rounds ``share`` of them have one.

    >>> [int(quota(np.array([10]), 0.9, number, 4)[0]) for number in (1, 2, 3, 4)]
    [2, 2, 3, 2]
    """
    before, after = (np.rint(total * share * n / rounds) for n in (number - 1, number))
    return np.asarray(after - before, dtype=np.int64)
