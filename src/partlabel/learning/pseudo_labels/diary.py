"""Which unknown labels a method took for present, epoch by epoch: for reports, not for training."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_file
from partlabel.learning.method import Task

_FOLDER = "diary"


class Diary(nn.Module):
    """A file for each epoch that is over in which something was taken for present.

    The current page is saved with the method.

    A method that decides unknown labels anew in each step has one of these as ``diary``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.page: list[Tensor] = []

    def prepare(self, task: Task) -> None:
        """Look at where to write."""
        self.folder = None if task.folder is None else task.folder / _FOLDER

    def note(self, rows: Tensor, taken: Tensor) -> None:
        """Remember cells of a batch: rows [B], and whether a cell was taken for present [B, C]."""
        image, column = taken.nonzero(as_tuple=True)
        self.page.append((rows[image] * taken.shape[1] + column).cpu())

    def turn(self, epoch: int) -> None:
        """Before an epoch: put the page of the one before away."""
        taken = self.get_extra_state().numpy()
        if len(taken) and self.folder is not None:
            self.folder.mkdir(exist_ok=True)
            with atomic_file(self.folder / f"{epoch}.npy") as stream:
                np.save(stream, taken)
        self.page = []

    def get_extra_state(self) -> Tensor:
        """All cells of the page."""
        return torch.cat(self.page) if self.page else torch.empty(0, dtype=torch.int64)

    def set_extra_state(self, state: Any) -> None:
        """Go on with a page."""
        self.page = [state]


def read_diary(
    folder: Path, last_page: Tensor | None, epochs: int, cells: int
) -> dict[int, NDArray[np.int64]]:
    """The cells, row * C + column, that were taken for present, by epoch from 1.

    Args:
        folder: of a run.
        last_page: of the epoch that the training ended with; None if it keeps no diary.
        epochs: how many the training had.
        cells: how many there are, N * C.
    """
    if last_page is None:
        return {}
    nothing = np.empty(0, dtype=np.int64)
    pages = dict.fromkeys(range(1, epochs), nothing) | {epochs: last_page.numpy()}
    for path in (folder / _FOLDER).glob("[0-9]*.npy"):
        try:
            pages[int(path.stem)] = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise FileError(path, f"not a page of a diary ({error})") from error
    for number, page in pages.items():
        if page.dtype != np.int64 or page.ndim != 1 or ((page < 0) | (page >= cells)).any():
            raise FileError(folder / _FOLDER / f"{number}.npy", "holds other labels than the run's")
    return pages
