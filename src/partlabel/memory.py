"""Pseudo-labels on disk: which cells have one, since when, and how soft.

A memory of N x C cells holds 6 bytes for each: the round in which a label was given (negative for
absent, positive for present, 0 for none) and, apart from it, a value. Because the round is kept, a
memory can be read as it was after any round; a training that was stopped in the middle of one
repeats it, and what was half written does not count.

The cells lie on disk in blocks of classes that fit into memory one at a time, so a round can look
at whole classes and a batch at whole images, and neither needs more than a block.
"""

import hashlib
import json
import math
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from partlabel.errors import FileError, JobError
from partlabel.files import atomic_file
from partlabel.labels import LabelTable

_KNOWN = np.iinfo(np.int16).min  # in place of a round: the cell has a label of its own
_BLOCK = 1 << 28  # bytes of scores that are looked at in one go
_ROWS = 1 << 14  # images of a table whose known cells are looked at in one go
_CELLS = 1 << 22  # cells that are tallied in one go
_TOGETHER = 16  # classes that a thread looks at in one go


@dataclass(frozen=True)
class Tally:
    """What was given in which round, for which class.

    Args:
        given: [rounds, 2, C] number of labels: absent ones, present ones.
        judged: [rounds, 2, C] number of those whose truth is known.
        right: [rounds, 2, C] number of those that are true.
    """

    given: NDArray[np.int64]
    judged: NDArray[np.int64]
    right: NDArray[np.int64]


class LabelMemory:
    """Pseudo-labels for the unknown cells of a table.

    Args:
        labels: known cells never get a pseudo-label.
        folder: where it lies on disk; opened if it is there already. None keeps it in memory.
    """

    def __init__(self, labels: LabelTable, folder: Path | None = None) -> None:
        images, classes = labels.shape
        self.folder = folder
        if folder is not None and self.is_in(folder):
            shape = _Shape.read(folder)
            if (shape.images, shape.classes, shape.known) != (images, classes, _digest(labels)):
                raise FileError(folder, "holds pseudo-labels for other labels")
            self._set_shape(images, classes, shape.width)
            self._map("r+")
            return
        self._set_shape(images, classes, max(1, _BLOCK // max(4 * images, 1)))
        if folder is None:
            self.rounds: NDArray[np.int16] = np.zeros(self.shape, dtype=np.int16)
            self.values: NDArray[np.float32] = np.zeros(self.shape, dtype=np.float32)
        else:
            self._make_files(folder)
        self._mark(labels)
        if folder is not None:
            self.flush()
            _Shape(images, classes, self.width, _digest(labels)).write(folder)  # last: it is whole

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder holds a memory."""
        return (folder / "shape.json").is_file()

    @classmethod
    def open(cls, folder: Path) -> "LabelMemory":
        """A memory that is on disk, to look at."""
        memory = cls.__new__(cls)
        memory.folder = folder
        shape = _Shape.read(folder)
        memory._set_shape(shape.images, shape.classes, shape.width)
        memory._map("r")
        return memory

    def _set_shape(self, images: int, classes: int, width: int) -> None:
        self.images, self.classes, self.width = images, classes, min(width, max(classes, 1))
        self.shape = (-(-classes // self.width), images, self.width)

    def _make_files(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        need, free = 6 * math.prod(self.shape), shutil.disk_usage(folder).free
        if need > free:
            raise JobError(
                f"{folder}: pseudo-labels for {self.images:,} x {self.classes:,} cells need "
                f"{need / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free; put --out on a larger disk"
            )
        for name, size in (("rounds", 2), ("values", 4)):
            with (folder / name).open("wb") as stream:
                _reserve(stream.fileno(), size * math.prod(self.shape), folder)
        self._map("r+")

    def _map(self, mode: Any) -> None:
        def open_one(name: str, kind: Any) -> NDArray[Any]:
            if not math.prod(self.shape):
                return np.zeros(self.shape, dtype=kind)
            assert self.folder is not None
            path = self.folder / name
            try:
                if path.stat().st_size != np.dtype(kind).itemsize * math.prod(self.shape):
                    raise ValueError("not as large as it must be")
                return np.memmap(path, dtype=kind, mode=mode, shape=self.shape)
            except (OSError, ValueError) as error:
                raise FileError(path, f"damaged ({error})") from error

        self.rounds, self.values = open_one("rounds", np.int16), open_one("values", np.float32)

    def _mark(self, labels: LabelTable) -> None:
        for start in range(0, self.images, _ROWS):
            cells = labels.cells.take(np.arange(start, min(start + _ROWS, self.images)))
            known = cells.values != 0
            block, place = np.divmod(cells.columns[known], self.width)
            self.rounds[block, cells.rows[known] + start, place] = _KNOWN

    def flush(self) -> None:
        """Make sure that what was given is on disk."""
        for array in (self.rounds, self.values):
            if isinstance(array, np.memmap):
                array.flush()

    def read(
        self, rows: NDArray[np.int64], upto: int
    ) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Pseudo-labels [B, C] in {-1, 0, 1} of these images after a round, and their values."""
        rounds, values = self._rows(self.rounds, rows), self._rows(self.values, rows)
        given = (rounds != 0) & (rounds != _KNOWN) & (np.abs(rounds) <= upto)
        return np.where(given, np.sign(rounds), 0).astype(np.int8), values

    def _rows(self, array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
        found = np.asarray(array[:, rows]).transpose(1, 0, 2)
        return found.reshape(len(rows), self.shape[0] * self.width)[:, : self.classes]

    def begin(self, number: int) -> "Round":
        """Begin a round (from 1 on); what it gives replaces labels of this and later rounds."""
        return Round(self, number)

    def tally(self, upto: int, truth: LabelTable | None = None) -> Tally:
        """How many labels each round gave, and how many of them are true."""
        given, judged, right = (np.zeros((upto, 2, self.classes), np.int64) for _ in range(3))
        step = max(1, _CELLS // max(self.classes, 1))
        for rows in np.split(np.arange(self.images), range(step, self.images, step)):
            rounds = self._rows(self.rounds, rows).astype(np.int64)
            at, column = np.nonzero((rounds != 0) & (rounds != _KNOWN) & (np.abs(rounds) <= upto))
            number = rounds[at, column]
            where = (np.abs(number) - 1, (number > 0).astype(np.int64), column)
            np.add.at(given, where, 1)
            if truth is not None:
                true = truth.dense(rows)[at, column]
                np.add.at(judged, where, true != 0)
                np.add.at(right, where, np.sign(number) == true)
        return Tally(given, judged, right)


class Round:
    """One round of giving labels: first all scores, then the choice.

    Args:
        memory: where labels are given.
        number: of the round, from 1 on.
    """

    def __init__(self, memory: LabelMemory, number: int) -> None:
        self.memory, self.number = memory, number
        self.scored = np.zeros(memory.images, dtype=np.bool_)

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
        later = (np.abs(rounds) >= self.number) & (rounds != _KNOWN)
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


@dataclass(frozen=True)
class _Shape:
    """What ``shape.json`` says; ``known`` is a hash of which cells have labels of their own."""

    images: int
    classes: int
    width: int
    known: str

    @classmethod
    def read(cls, folder: Path) -> "_Shape":
        path = folder / "shape.json"
        try:
            found = json.loads(path.read_bytes())
            shape = cls(**found)
            sizes = [int(size) for size in (shape.images, shape.classes, shape.width - 1)]
            if min(sizes) < 0:
                raise ValueError("sizes out of range")
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise FileError(path, f"damaged ({error})") from error
        return shape

    def write(self, folder: Path) -> None:
        with atomic_file(folder / "shape.json") as stream:
            stream.write(json.dumps(asdict(self)).encode())


def _digest(labels: LabelTable) -> str:
    cells = labels.cells
    digest = hashlib.blake2b(digest_size=16)
    for array in (cells.starts, cells.columns, cells.values):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _reserve(handle: int, size: int, folder: Path) -> None:
    """Make a file of zeros whose room on the disk nobody else can take."""
    if not size:
        return
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:
            os.ftruncate(handle, size)
    except OSError as error:
        raise JobError(f"{folder}: no room for pseudo-labels ({error.strerror})") from error
