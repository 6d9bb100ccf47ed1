"""The labels that a method gives itself, in rounds."""

import shutil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from partlabel.base.errors import FileError, InputError
from partlabel.learning.method import Task
from partlabel.learning.pseudo_labels import LabelMemory, Round


class PseudoLabels(nn.Module):
    """Labels for unknown cells, on disk, and how many rounds of them count.

    A method that gives itself labels has one of these as ``pseudo``; reports look for it there.

    Args:
        redecide: each round begins with all unknown cells again, instead of those still unknown.
            It then has a memory of its own, so that a training that was stopped can go back to the
            round before.
    """

    round: Tensor

    def __init__(self, *, redecide: bool = False) -> None:
        super().__init__()
        self.redecide = redecide
        self.register_buffer("round", torch.zeros((), dtype=torch.int64))

    def prepare(self, task: Task) -> None:
        """Look at the labels; a memory is made when it is needed."""
        self.task = task
        self.memories: dict[int, LabelMemory] = {}

    def recall(self, number: int) -> LabelMemory:
        """The memory of a round that was completed; it must be there."""
        return self._open(number, new=False)

    def begin(self, number: int) -> Round:
        """Begin a round, from 1 on."""
        return Round(self._open(number, new=number == 1 or self.redecide), number)

    def complete(self, number: int) -> None:
        """A round is over: from now on its labels count.

        The trainer saved before the round, so a stop now goes back to the round before at most.
        """
        self.round.fill_(number)
        if self.redecide and self.task.folder is not None:
            self.memories.pop(number - 2, None)
            shutil.rmtree(self.task.folder / f"memory-{number - 2}", ignore_errors=True)

    def read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Labels [B, C] in {-1, 0, 1} of these images, 0 for none, and their values."""
        number = int(self.round)
        found = self.recall(number).read(np.asarray(rows.cpu()), number)
        signs, values = (torch.from_numpy(part).to(rows.device) for part in found)
        return signs, values

    def _open(self, number: int, *, new: bool) -> LabelMemory:
        at = number if self.redecide else 0
        if at not in self.memories:
            folder = self.task.folder
            if folder is not None:
                folder = folder / (f"memory-{number}" if self.redecide else "memory")
            if not new and (folder is None or not LabelMemory.is_in(folder)):
                raise FileError(
                    folder or "memory", "the run's pseudo-labels are missing; train again"
                )
            self.memories[at] = LabelMemory(self.task.labels, folder)
        return self.memories[at]


def refuse_patience(patience: int | None) -> None:
    """A training that may end early may end before all labels are given."""
    if patience is not None:
        raise InputError(
            "--patience could end the training before all pseudo-labels are given; leave it out, "
            "and set --epochs"
        )


def find_memory(folder: Path, completed: int) -> Path | None:
    """Where a run keeps the labels that its method gave itself, if it did."""
    for name in (f"memory-{completed}", "memory"):
        if LabelMemory.is_in(folder / name):
            return folder / name
    return None
