"""The unknown labels that a method treated as present in each epoch, for reports."""

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

    For methods that decide in every step which unknown labels count as present. The page of the
    current epoch is saved with the method. Earlier pages are files. Training does not read them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.page: list[Tensor] = []

    def prepare(self, task: Task) -> None:
        """Set the folder of the pages, and the number of cells of the training table."""
        self.folder = None if task.folder is None else task.folder / _FOLDER
        self.cells = math.prod(task.labels.shape)

    def add(self, rows: Tensor, present: Tensor) -> None:
        """Add the cells of a batch.

        Args:
            rows: [B] the images.
            present: [B, C] whether a cell is unknown and counted as present.
        """
        image, column = present.nonzero(as_tuple=True)
        self.page.append((rows[image] * present.shape[1] + column).cpu())

    def begin_epoch(self, epoch: int) -> None:
        """Write the page of the epoch before, and start an empty one."""
        cells = self.get_extra_state().numpy()
        if len(cells) and self.folder is not None:
            self.folder.mkdir(exist_ok=True)
            with atomic_file(self.folder / f"{epoch}.npy") as stream:
                np.save(stream, cells)
        self.page = []

    def pages(self, epochs: int) -> dict[int, Cells]:
        """The cells of each epoch, counted from 1, after a training of ``epochs`` epochs."""
        empty = np.empty(0, dtype=np.int64)
        pages = dict.fromkeys(range(1, epochs), empty) | {epochs: self.get_extra_state().numpy()}
        for path in self.folder.glob("[0-9]*.npy") if self.folder is not None else ():
            try:
                with path.open("rb") as stream:  # np.load would also open archives
                    pages[int(path.stem)] = np.lib.format.read_array(stream, allow_pickle=False)
            except (OSError, ValueError, MemoryError) as error:
                raise FileError(path, f"not a page of a diary ({error})") from error
        for number, page in pages.items():
            is_malformed = page.dtype != np.int64 or page.ndim != 1
            if is_malformed or ((page < 0) | (page >= self.cells)).any():
                name = f"{_FOLDER}/{number}.npy"
                raise FileError(self.folder or name, f"{name} belongs to other labels than the run")
        return pages

    def get_extra_state(self) -> Tensor:
        """All cells of the current page, for a checkpoint."""
        return torch.cat(self.page) if self.page else torch.empty(0, dtype=torch.int64)

    def set_extra_state(self, state: Any) -> None:
        """Restore the page of a checkpoint."""
        self.page = [state]
