"""The logits of all images of a table, in blocks of rows, as often as they are needed.

Logits of few images are kept in memory. Those of many are computed again from given features, which
is fast; for images they are kept in a temporary file.
"""

import math
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base import launch
from partlabel.base.errors import JobError, data_size
from partlabel.images.batches import Rows
from partlabel.judging.scoring import model_on_device, score_blocks
from partlabel.labels import LabelTable
from partlabel.models import Classifier
from partlabel.models.prediction import InputSource, Predictions, iterate_logits
from partlabel.training.embedded import inputs_of
from partlabel.training.run import Run

KEPT = 1 << 25  # logits that are kept in memory
_BLOCK = 1024  # rows

Logits = NDArray[np.float32]


class ImageScores(Protocol):
    """Logits of images.

    Attributes:
        table: the images, with the labels that are known.
        readable: [n] which images can be read.
        broken: messages of those that cannot.
    """

    @property
    def table(self) -> LabelTable:
        """See above."""

    @property
    def readable(self) -> NDArray[np.bool_]:
        """See above."""

    @property
    def broken(self) -> list[str]:
        """See above."""

    def blocks(self, rows: Rows | None = None) -> Iterator[tuple[Rows, Tensor]]:
        """Readable rows [b] and logits [b, C], in this order; None for all rows.

        The same rows are always in the same blocks, so that their logits are the same bit for bit.
        """


def is_small(table: LabelTable) -> bool:
    """Whether the logits of a table are kept in memory."""
    return math.prod(table.shape) <= KEPT


def scores_of(run: Run, table: LabelTable, images: Path | None = None) -> ImageScores:
    """The logits of a run for the images of a table.

    Args:
        images: the folder of the images; None for the run's own.
    """
    if run.features is not None and not is_small(table):
        model = model_on_device(run)
        return ComputedScores(run, model, inputs_of(run, model, table), table)
    broken, readable = list[str](), np.zeros(len(table), dtype=np.bool_)
    logits = _room(table.shape)
    for rows, part in score_blocks(run, table, images, on_broken=broken.append):
        logits[rows] = part.cpu().numpy()
        readable[rows] = True
    return KeptScores(table, logits, readable, broken)


def _room(shape: tuple[int, int]) -> Logits:
    """An array in memory, or in a file without a name that goes away with the array."""
    size = 4 * math.prod(shape)
    if math.prod(shape) <= KEPT:
        return np.zeros(shape, dtype=np.float32)
    folder = tempfile.gettempdir()
    files = launch.on_this_computer()  # one for each process
    if shutil.disk_usage(folder).free < files * size:
        raise JobError(
            f"the scores of {shape[0]:,} images need {data_size(files * size)}, more than is free "
            f"in {folder}; set TMPDIR to a folder on a larger disk"
        )
    with tempfile.TemporaryFile() as stream:
        return np.memmap(stream, dtype=np.float32, mode="w+", shape=shape)


@dataclass(frozen=True)
class KeptScores:
    """Logits [n, C] that were computed once."""

    table: LabelTable
    logits: Logits
    readable: NDArray[np.bool_]
    broken: list[str]

    def blocks(self, rows: Rows | None = None) -> Iterator[tuple[Rows, Tensor]]:
        """See :class:`ImageScores`."""
        wanted = np.arange(len(self.table)) if rows is None else rows
        for start in range(0, len(wanted), _BLOCK):
            part = wanted[start : start + _BLOCK]
            part = part[self.readable[part]]
            if len(part):
                yield part, torch.from_numpy(self.logits[part])

    def joined(self, other: "KeptScores") -> "KeptScores":
        """The images of both, one after the other."""
        table = self.table.merge(other.table)
        logits = _room(table.shape)
        logits[: len(self.table)], logits[len(self.table) :] = self.logits, other.logits
        readable = np.concatenate([self.readable, other.readable])
        return KeptScores(table, logits, readable, [*self.broken, *other.broken])


class ComputedScores:
    """Logits that are computed from given features each time."""

    def __init__(self, run: Run, model: Classifier, inputs: InputSource, table: LabelTable) -> None:
        self.run, self.model, self.inputs, self.table = run, model, inputs, table
        self.readable: NDArray[np.bool_] = np.ones(len(table), dtype=np.bool_)
        self.broken: list[str] = []

    def blocks(self, rows: Rows | None = None) -> Predictions:
        """See :class:`ImageScores`."""
        wanted: NDArray[Any] = np.arange(len(self.table)) if rows is None else rows
        size, workers = self.run.settings.batch, self.run.execution.workers
        for part, logits in iterate_logits(self.model, self.inputs, wanted, size, workers):
            yield part, logits.cpu()
