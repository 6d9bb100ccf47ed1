"""Storage of pseudo-labels: which cells have one, from which round, and its value.

There are 6 bytes per cell: the number of the round that gave the label (negative for absent,
positive for present, 0 for no label), and separately a value, such as a soft target. Because the
round is stored, the labels can be read as they were after any round. If a training is stopped
during a round, the round is repeated, and labels that it already wrote are ignored.

On disk, the cells are divided into blocks of classes. A block fits into memory. A round reads whole
classes, one block at a time, and a batch reads whole images across the blocks.
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

from partlabel.base.errors import FileError, JobError, data_size
from partlabel.base.files import atomic_file
from partlabel.labels import LabelTable

KNOWN = np.iinfo(np.int16).min  # in place of a round: the label of this cell is known
_BLOCK = 1 << 28  # bytes of the scores of a block of classes
_ROWS = 1 << 14  # images whose known cells are marked at a time
_CELLS = 1 << 22  # cells that are counted at a time


@dataclass(frozen=True)
class Tally:
    """The numbers of pseudo-labels per round, sign (absent, present) and class.

    Args:
        given: [rounds, 2, C] number of labels.
        judged: [rounds, 2, C] number of those whose true label is known.
        right: [rounds, 2, C] number of those that are correct.
        first: number of the first round in the arrays; labels of earlier rounds were replaced.
    """

    given: NDArray[np.int64]
    judged: NDArray[np.int64]
    right: NDArray[np.int64]
    first: int = 1

    def of_rounds(self, which: slice) -> "Tally":
        """The counts of some of the rounds."""
        first = self.first + (which.start or 0)
        return Tally(self.given[which], self.judged[which], self.right[which], first)


class LabelMemory:
    """Pseudo-labels for the unknown cells of a table.

    Args:
        labels: the table; known cells never get a pseudo-label.
        folder: where the files are; opened if they exist. None to keep the labels in memory.
    """

    def __init__(self, labels: LabelTable, folder: Path | None = None) -> None:
        images, classes = labels.shape
        self.folder = folder
        if folder is not None and self.is_in(folder):
            shape = _Shape.read(folder)
            if (shape.images, shape.classes, shape.known) != (images, classes, _digest(labels)):
                raise FileError(
                    folder, "holds pseudo-labels of other labels; train in a new folder"
                )
            self._set_shape(images, classes, shape.width)
            self._open_arrays("r+")
            return
        self._set_shape(images, classes, max(1, _BLOCK // max(4 * images, 1)))
        if folder is None:
            self.rounds: NDArray[np.int16] = np.zeros(self.shape, dtype=np.int16)
            self.values: NDArray[np.float32] = np.zeros(self.shape, dtype=np.float32)
        else:
            self._make_files(folder)
        self._mark_known(labels)
        if folder is not None:
            self.flush()
            # written last: its presence shows that the files are complete
            _Shape(images, classes, self.width, _digest(labels)).write(folder)

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder holds pseudo-labels."""
        return (folder / "shape.json").is_file()

    @classmethod
    def open(cls, folder: Path) -> "LabelMemory":
        """Open pseudo-labels on disk for reading."""
        memory = cls.__new__(cls)
        memory.folder = folder
        shape = _Shape.read(folder)
        memory._set_shape(shape.images, shape.classes, shape.width)
        memory._open_arrays("r")
        return memory

    def _set_shape(self, images: int, classes: int, width: int) -> None:
        self.images, self.classes, self.width = images, classes, min(width, max(classes, 1))
        self.shape = (-(-classes // self.width), images, self.width)

    def _make_files(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        needed, free = 6 * math.prod(self.shape), shutil.disk_usage(folder).free
        if needed > free:
            raise JobError(
                f"{folder}: pseudo-labels for {self.images:,} x {self.classes:,} cells need "
                f"{data_size(needed)}, but only {data_size(free)} are free; put --out on a "
                "larger disk"
            )
        for name, size in (("rounds", 2), ("values", 4)):
            with (folder / name).open("wb") as stream:
                _reserve(stream.fileno(), size * math.prod(self.shape), folder)
        self._open_arrays("r+")

    def _open_arrays(self, mode: Any) -> None:
        def open_array(name: str, dtype: Any) -> NDArray[Any]:
            if not math.prod(self.shape):
                return np.zeros(self.shape, dtype=dtype)
            assert self.folder is not None
            path = self.folder / name
            try:
                if path.stat().st_size != np.dtype(dtype).itemsize * math.prod(self.shape):
                    raise ValueError("the file has the wrong size")
                return np.memmap(path, dtype=dtype, mode=mode, shape=self.shape)
            except (OSError, ValueError) as error:
                raise FileError(path, f"damaged ({error})") from error

        self.rounds, self.values = open_array("rounds", np.int16), open_array("values", np.float32)

    def _mark_known(self, labels: LabelTable) -> None:
        for start in range(0, self.images, _ROWS):
            cells = labels.cells.take(np.arange(start, min(start + _ROWS, self.images)))
            known = cells.values != 0
            block, column = np.divmod(cells.columns[known], self.width)
            self.rounds[block, cells.rows[known] + start, column] = KNOWN

    def flush(self) -> None:
        """Write all changes to disk."""
        for array in (self.rounds, self.values):
            if isinstance(array, np.memmap):
                array.flush()

    def read(
        self, rows: NDArray[np.int64], last_round: int
    ) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """The pseudo-labels of images as they were after a round.

        Returns:
            Labels [B, C] in {-1, 0, 1}, 0 for none, and their values [B, C].
        """
        rounds, values = self.of_rows(self.rounds, rows), self.of_rows(self.values, rows)
        return np.where(_is_given(rounds, last_round), np.sign(rounds), 0).astype(np.int8), values

    def of_rows(self, array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
        """The cells [B, C] of ``rounds`` or ``values`` of these images, from all blocks."""
        cells = np.asarray(array[:, rows]).transpose(1, 0, 2)
        return cells.reshape(len(rows), self.shape[0] * self.width)[:, : self.classes]

    def tally(self, last_round: int, truth: LabelTable | None = None) -> Tally:
        """Count the labels of each round, and how many of them are correct."""
        given, judged, right = (np.zeros((last_round, 2, self.classes), np.int64) for _ in range(3))
        step = max(1, _CELLS // max(self.classes, 1))
        for rows in np.split(np.arange(self.images), range(step, self.images, step)):
            rounds = self.of_rows(self.rounds, rows).astype(np.int64)
            image, column = np.nonzero(_is_given(rounds, last_round))
            signed_round = rounds[image, column]
            index = (np.abs(signed_round) - 1, (signed_round > 0).astype(np.int64), column)
            np.add.at(given, index, 1)
            if truth is not None:
                true = truth.dense(rows)[image, column]
                np.add.at(judged, index, true != 0)
                np.add.at(right, index, np.sign(signed_round) == true)
        return Tally(given, judged, right)


def _is_given(rounds: NDArray[Any], last_round: int) -> NDArray[np.bool_]:
    """Which cells have a pseudo-label of this or an earlier round."""
    return np.asarray((rounds != 0) & (rounds != KNOWN) & (np.abs(rounds) <= last_round))


@dataclass(frozen=True)
class _Shape:
    """The content of ``shape.json``; ``known`` is a hash of the known labels."""

    images: int
    classes: int
    width: int
    known: str

    @classmethod
    def read(cls, folder: Path) -> "_Shape":
        path = folder / "shape.json"
        try:
            shape = cls(**json.loads(path.read_bytes()))
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
    """Fill a file with zeros and reserve its space on the disk, if the system can."""
    if not size:
        return
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:
            os.ftruncate(handle, size)
    except OSError as error:
        raise JobError(f"{folder}: no space for pseudo-labels ({error.strerror})") from error
