"""A round of pseudo-labels: the choice of the cells that get one."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from partlabel.base.errors import JobError
from partlabel.learning.pseudo_labels.memory import KNOWN, LabelMemory

_ROWS = 256  # images that are cleared at a time
_CLASSES = 16  # classes that a thread processes at a time


class Round:
    """One round of pseudo-labels.

    Either call :meth:`score` for all images and then :meth:`give`, or call :meth:`mark` for all
    images and then :meth:`end`. Labels of the same or a later round, which a stopped training may
    have left, are replaced.

    Args:
        memory: where the labels are stored.
        number: number of the round, from 1 on.
    """

    def __init__(self, memory: LabelMemory, number: int) -> None:
        self.memory, self.number = memory, number
        self.scored = np.zeros(memory.images, dtype=np.bool_)

    def open_cells(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[B, C] which cells of these images had no label when this round began."""
        return self._is_free(self.memory.of_rows(self.memory.rounds, rows))

    def mark(self, rows: NDArray[np.int64], signs: NDArray[np.int8]) -> int:
        """Give labels to the open cells of images.

        Call :meth:`end` after the last images.

        Args:
            rows: [B] the images.
            signs: [B, C] in {-1, 0, 1}, 0 for no label; ignored in cells that are not open.

        Returns:
            The number of labels given.
        """
        memory, new_labels = self.memory, 0
        self.scored[rows] = True
        for block in range(memory.shape[0]):
            block_signs = signs[:, block * memory.width : (block + 1) * memory.width]
            width = block_signs.shape[1]
            rounds = memory.rounds[block, rows, :width]
            free = self._is_free(rounds)
            chosen = np.where(free, block_signs, 0).astype(np.int16)
            memory.rounds[block, rows, :width] = np.where(free, chosen * self.number, rounds)
            values = memory.values[block, rows, :width]
            memory.values[block, rows, :width] = np.where(chosen != 0, chosen > 0, values)
            new_labels += int(np.count_nonzero(chosen))
        return new_labels

    def end(self) -> None:
        """Remove labels that a stopped training left in images without marks; write to disk."""
        unmarked = np.flatnonzero(~self.scored)
        for part in np.split(unmarked, range(_ROWS, len(unmarked), _ROWS)):
            self.mark(part, np.zeros((len(part), self.memory.classes), dtype=np.int8))
        self.memory.flush()

    def score(self, rows: NDArray[np.int64], scores: NDArray[Any]) -> None:
        """Store the scores [B, C] of images. Images without scores get no label in this round."""
        memory = self.memory
        if np.isnan(scores).any():
            raise JobError("scores of training images became NaN; a smaller --lr usually helps")
        self.scored[rows] = True
        for block in range(memory.shape[0]):
            block_scores = scores[:, block * memory.width : (block + 1) * memory.width]
            width = block_scores.shape[1]
            free = self._is_free(memory.rounds[block, rows, :width])
            values = memory.values[block, rows, :width]
            memory.values[block, rows, :width] = np.where(free, block_scores, values)

    def _is_free(self, rounds: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Which cells had no label when this round began."""
        has_later_label = (np.abs(rounds) >= self.number) & (rounds != KNOWN)
        return np.asarray((rounds == 0) | has_later_label)

    def give(
        self, lowest: ArrayLike, highest: ArrayLike = 0, values: tuple[float, float] | None = None
    ) -> int:
        """Give labels to the cells with the lowest and the highest scores of each class.

        Among equal scores the first images are taken.

        Args:
            lowest: [C] number of cells of each class that become absent; all if there are fewer.
            highest: [C] number of the remaining cells that become present.
            values: the values of absent and of present labels; None for their scores.

        Returns:
            The number of labels given.
        """
        memory, new_labels = self.memory, 0
        absent = np.broadcast_to(np.asarray(lowest, dtype=np.int64), memory.classes)
        present = np.broadcast_to(np.asarray(highest, dtype=np.int64), memory.classes)
        for block in range(memory.shape[0]):
            columns = slice(block * memory.width, (block + 1) * memory.width)
            width = len(absent[columns])
            rounds = memory.rounds[block, :, :width]
            free = self._is_free(rounds) & self.scored[:, None]
            scores = memory.values[block, :, :width]
            chosen = choose(scores, free, absent[columns], present[columns])
            stale = self._is_free(rounds) & (rounds != 0)
            if stale.any():
                rounds[stale] = 0
            np.copyto(rounds, chosen * np.int16(self.number), where=chosen != 0)
            if values is not None:
                for sign, value in zip((-1, 1), values, strict=True):
                    memory.values[block, :, :width][chosen == sign] = value
            new_labels += int(np.count_nonzero(chosen))
        memory.flush()
        return new_labels


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
        lowest, highest: [C] the numbers of cells. If a class has too few cells, the lowest scores
            have priority.

    Returns:
        [N, C] in {-1, 0, 1}
    """
    chosen = np.empty(scores.shape, dtype=np.int8)
    free_counts = np.count_nonzero(free, axis=0)

    def choose_columns(start: int) -> None:
        # adjacent classes share cache lines, and a few at a time fit into the cache
        columns = slice(start, start + _CLASSES)
        by_class = np.where(free[:, columns], scores[:, columns], np.inf).T.copy()
        signs = np.zeros(by_class.shape, dtype=np.int8)
        for class_signs, class_scores, absent, present, available in zip(
            signs, by_class, lowest[columns], highest[columns], free_counts[columns], strict=True
        ):
            absent = min(absent, available)
            present = min(present, available - absent)
            _mark_lowest(class_scores, absent, class_signs, -1)
            if present > 0:
                is_left = (class_signs == 0) & (class_scores < np.inf)
                _mark_lowest(np.where(is_left, -class_scores, np.inf), present, class_signs, 1)
        chosen[:, columns] = signs.T

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy releases the lock for other threads
        list(pool.map(choose_columns, range(0, scores.shape[1], _CLASSES)))
    return chosen


def _mark_lowest(scores: NDArray[Any], number: int, chosen: NDArray[np.int8], sign: int) -> None:
    """Set ``chosen`` to ``sign`` at the lowest scores; among equal ones the first."""
    if number <= 0:
        return
    limit = np.partition(scores, number - 1)[number - 1]  # faster than sorting
    below = scores < limit
    chosen += below.view(np.int8) * np.int8(sign)
    equal = np.flatnonzero(scores == limit)[: number - int(np.count_nonzero(below))]
    chosen[equal] = sign


def quota(total: NDArray[np.int64], share: float, number: int, rounds: int) -> NDArray[np.int64]:
    """The number of cells that get a label in a round.

    After all rounds, a share of the cells of each class has a label.

    Args:
        total: [C] number of cells of each class.
        share: share of the cells that has a label after all rounds.
        number: number of this round, from 1 on.
        rounds: number of rounds.

    >>> [int(quota(np.array([10]), 0.9, number, 4)[0]) for number in (1, 2, 3, 4)]
    [2, 2, 3, 2]
    """
    before, after = (np.rint(total * share * n / rounds) for n in (number - 1, number))
    return np.asarray(after - before, dtype=np.int64)
