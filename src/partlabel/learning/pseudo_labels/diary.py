"""Which unknown labels a method treated as present, epoch by epoch: for reports, not training."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_file
from partlabel.learning.method import Task

_FOLDER = "diary"

Cells = NDArray[np.int64]


class Diary(nn.Module):
    """One page per epoch: the unknown cells that counted as present, as row * C + column.

    The page of the current epoch is saved with the method, earlier ones are files. For methods that
    decide unknown labels anew in every step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.page: list[Tensor] = []

    def prepare(self, task: Task) -> None:
        """Remember where to write."""
        self.folder = None if task.folder is None else task.folder / _FOLDER
        self.cells = math.prod(task.labels.shape)

    def note(self, rows: Tensor, present: Tensor) -> None:
        """Add cells of a batch: its rows [B], and which cells [B, C] counted as present."""
        image, column = present.nonzero(as_tuple=True)
        self.page.append((rows[image] * present.shape[1] + column).cpu())

    def turn(self, epoch: int) -> None:
        """Call before each epoch: writes the page of the epoch before."""
        cells = self.get_extra_state().numpy()
        if len(cells) and self.folder is not None:
            self.folder.mkdir(exist_ok=True)
            with atomic_file(self.folder / f"{epoch}.npy") as stream:
                np.save(stream, cells)
        self.page = []

    def pages(self, epochs: int) -> dict[int, Cells]:
        """The cells of each epoch, counted from 1, of a training of ``epochs`` epochs."""
        empty = np.empty(0, dtype=np.int64)
        pages = dict.fromkeys(range(1, epochs), empty) | {epochs: self.get_extra_state().numpy()}
        for path in self.folder.glob("[0-9]*.npy") if self.folder is not None else ():
            try:
                with path.open("rb") as stream:  # np.load would also open archives
                    pages[int(path.stem)] = np.lib.format.read_array(stream, allow_pickle=False)
            except (OSError, ValueError, MemoryError) as error:
                raise FileError(path, f"not a page of a diary ({error})") from error
        for number, page in pages.items():
            wrong = page.dtype != np.int64 or page.ndim != 1
            if wrong or ((page < 0) | (page >= self.cells)).any():
                name = f"{_FOLDER}/{number}.npy"
                raise FileError(self.folder or name, f"{name} holds other labels than the run's")
        return pages

    def get_extra_state(self) -> Tensor:
        """All cells of the current page."""
        return torch.cat(self.page) if self.page else torch.empty(0, dtype=torch.int64)

    def set_extra_state(self, state: Any) -> None:
        """Continue a page."""
        self.page = [state]
