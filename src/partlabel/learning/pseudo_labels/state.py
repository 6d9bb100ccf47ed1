"""The pseudo-labels of a method: a part that a method holds, saved with it."""

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

    The checkpoint only holds the number of completed rounds.

    Args:
        redecide: each round decides all unknown cells again, instead of those still unknown. Each
            round then has files of its own, so that a training that was stopped can go back to the
            round before.
    """

    round: Tensor

    def __init__(self, *, redecide: bool = False) -> None:
        super().__init__()
        self.redecide = redecide
        self.register_buffer("round", torch.zeros((), dtype=torch.int64))

    def prepare(self, task: Task) -> None:
        """Remember the labels; files are made when they are needed."""
        self.task = task
        self.memories: dict[int, LabelMemory] = {}

    def recall(self, number: int) -> LabelMemory:
        """The labels of a completed round; they must be there."""
        return self._open(number, new=False)

    def begin_round(self, number: int) -> Round:
        """Begin a round, counted from 1."""
        return Round(self._open(number, new=number == 1 or self.redecide), number)

    def end_round(self, number: int) -> None:
        """End a round: its labels count from now on.

        The trainer saves before a round, so a stop now goes back to the round before at most.
        """
        self.round.fill_(number)
        if self.redecide and self.task.folder is not None:
            self.memories.pop(number - 2, None)
            shutil.rmtree(self.task.folder / f"memory-{number - 2}", ignore_errors=True)

    def read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The labels [B, C] of these images in {-1, 0, 1}, 0 for none, and their soft values."""
        number = int(self.round)
        arrays = self.recall(number).read(np.asarray(rows.cpu()), number)
        signs, values = (torch.from_numpy(array).to(rows.device) for array in arrays)
        return signs, values

    def tally(self, truth: LabelTable | None) -> Tally:
        """Count the labels of completed rounds, and how many are correct if the truth is given.

        With ``redecide`` only the last round counts.
        """
        number = int(self.round)
        folder = self._folder(number)
        if number and folder is not None and LabelMemory.is_in(folder):
            memory = LabelMemory.open(folder)
            if (memory.images, memory.classes) != self.task.labels.shape:
                raise FileError(folder, "holds pseudo-labels of other labels than the run's")
        else:
            memory = LabelMemory(self.task.labels) if not number else self.recall(number)
        tally = memory.tally(number, truth)
        return tally.of_rounds(slice(number - 1, None)) if self.redecide and number else tally

    def _folder(self, number: int) -> Path | None:
        if self.task.folder is None:
            return None
        return self.task.folder / (f"memory-{number}" if self.redecide else "memory")

    def _open(self, number: int, *, new: bool) -> LabelMemory:
        slot = number if self.redecide else 0
        if slot not in self.memories:
            folder = self._folder(number)
            if not new and (folder is None or not LabelMemory.is_in(folder)):
                raise FileError(
                    folder or "memory", "the run's pseudo-labels are missing; train again"
                )
            self.memories[slot] = LabelMemory(self.task.labels, folder)
        return self.memories[slot]
