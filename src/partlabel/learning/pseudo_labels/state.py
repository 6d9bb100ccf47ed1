"""The pseudo-labels of a method, as a module that is saved with it."""

import shutil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from partlabel.base.errors import FileError
from partlabel.labels import LabelTable
from partlabel.learning.method import Task
from partlabel.learning.pseudo_labels.memory import LabelMemory, Tally
from partlabel.learning.pseudo_labels.round import Round


class PseudoLabels(nn.Module):
    """Labels for unknown cells, given in rounds and stored on disk.

    A checkpoint only holds the number of completed rounds.

    Args:
        redecide: whether each round decides all unknown cells again, instead of those without a
            pseudo-label. Each round then has its own files, so that a training that was stopped can
            return to the round before.
    """

    round: Tensor

    def __init__(self, *, redecide: bool = False) -> None:
        super().__init__()
        self.redecide = redecide
        self.register_buffer("round", torch.zeros((), dtype=torch.int64))

    def prepare(self, task: Task) -> None:
        """Set the training labels. Files are opened when they are needed."""
        self.task = task
        self.memories: dict[int, LabelMemory] = {}

    def memory_of(self, number: int) -> LabelMemory:
        """The stored labels of a completed round; an error if they are missing."""
        return self._open(number, new=False)

    def begin_round(self, number: int) -> Round:
        """Begin a round; rounds are counted from 1."""
        return Round(self._open(number, new=number == 1 or self.redecide), number)

    def end_round(self, number: int) -> None:
        """End a round: from now on its labels are used."""
        self.round.fill_(number)
        # The trainer saves a checkpoint before each round. So a training that is stopped now
        # returns to the round before, and files of rounds before that one are not needed.
        if self.redecide and self.task.folder is not None:
            self.memories.pop(number - 2, None)
            shutil.rmtree(self.task.folder / f"memory-{number - 2}", ignore_errors=True)

    def read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The labels [B, C] of images in {-1, 0, 1}, 0 for none, and their values [B, C]."""
        number = int(self.round)
        arrays = self.memory_of(number).read(np.asarray(rows.cpu()), number)
        signs, values = (torch.from_numpy(array).to(rows.device) for array in arrays)
        return signs, values

    def tally(self, truth: LabelTable | None) -> Tally:
        """Count the labels of completed rounds.

        With ``redecide``, only those of the last round.

        Args:
            truth: true labels of the training images, to count correct labels too; None for none.
        """
        number = int(self.round)
        folder = self._folder(number)
        if number and folder is not None and LabelMemory.is_in(folder):
            memory = LabelMemory.open(folder)
            if (memory.images, memory.classes) != self.task.labels.shape:
                raise FileError(
                    folder, "holds pseudo-labels for other labels than those of the run"
                )
        else:
            memory = LabelMemory(self.task.labels) if not number else self.memory_of(number)
        tally = memory.tally(number, truth)
        return tally.of_rounds(slice(number - 1, None)) if self.redecide and number else tally

    def _folder(self, number: int) -> Path | None:
        if self.task.folder is None:
            return None
        return self.task.folder / (f"memory-{number}" if self.redecide else "memory")

    def _open(self, number: int, *, new: bool) -> LabelMemory:
        key = number if self.redecide else 0
        if key not in self.memories:
            folder = self._folder(number)
            if not new and (folder is None or not LabelMemory.is_in(folder)):
                raise FileError(
                    folder or "memory", "the run's pseudo-labels are missing; train again"
                )
            self.memories[key] = LabelMemory(self.task.labels, folder)
        return self.memories[key]
