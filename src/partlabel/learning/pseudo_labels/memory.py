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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError, JobError
from partlabel.base.files import atomic_file
from partlabel.labels import LabelTable

KNOWN = np.iinfo(np.int16).min  # in place of a round: the cell has a label of its own
_BLOCK = 1 << 28  # bytes of scores that are looked at in one go
_ROWS = 1 << 14  # images of a table whose known cells are looked at in one go
_CELLS = 1 << 22  # cells that are tallied in one go


@dataclass(frozen=True)
class Tally:
    """What was given in which round, for which class.

    Args:
        given: [rounds, 2, C] number of labels: absent ones, present ones.
        judged: [rounds, 2, C] number of those whose truth is known.
        right: [rounds, 2, C] number of those that are true.
        first: number of the first round; those before were replaced.
    """

    given: NDArray[np.int64]
    judged: NDArray[np.int64]
    right: NDArray[np.int64]
    first: int = 1

    def of_rounds(self, which: slice) -> "Tally":
        """The tally of some of the rounds."""
        first = self.first + (which.start or 0)
        return Tally(self.given[which], self.judged[which], self.right[which], first)


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
            self.rounds[block, cells.rows[known] + start, place] = KNOWN

    def flush(self) -> None:
        """Make sure that what was given is on disk."""
        for array in (self.rounds, self.values):
            if isinstance(array, np.memmap):
                array.flush()

    def read(
        self, rows: NDArray[np.int64], upto: int
    ) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Pseudo-labels [B, C] in {-1, 0, 1} of these images after a round, and their values."""
        rounds, values = self.of_rows(self.rounds, rows), self.of_rows(self.values, rows)
        given = (rounds != 0) & (rounds != KNOWN) & (np.abs(rounds) <= upto)
        return np.where(given, np.sign(rounds), 0).astype(np.int8), values

    def of_rows(self, array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
        """[B, C] of ``rounds`` or ``values``, wherever its blocks lie."""
        found = np.asarray(array[:, rows]).transpose(1, 0, 2)
        return found.reshape(len(rows), self.shape[0] * self.width)[:, : self.classes]

    def tally(self, upto: int, truth: LabelTable | None = None) -> Tally:
        """How many labels each round gave, and how many of them are true."""
        given, judged, right = (np.zeros((upto, 2, self.classes), np.int64) for _ in range(3))
        step = max(1, _CELLS // max(self.classes, 1))
        for rows in np.split(np.arange(self.images), range(step, self.images, step)):
            rounds = self.of_rows(self.rounds, rows).astype(np.int64)
            at, column = np.nonzero((rounds != 0) & (rounds != KNOWN) & (np.abs(rounds) <= upto))
            number = rounds[at, column]
            where = (np.abs(number) - 1, (number > 0).astype(np.int64), column)
            np.add.at(given, where, 1)
            if truth is not None:
                true = truth.dense(rows)[at, column]
                np.add.at(judged, where, true != 0)
                np.add.at(right, where, np.sign(number) == true)
        return Tally(given, judged, right)


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
            sizes = (shape.images, shape.classes, shape.width)
            if any(type(size) is not int for size in sizes):
                raise ValueError("sizes are whole numbers")
            if min(sizes) < 0 or not shape.width:
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
