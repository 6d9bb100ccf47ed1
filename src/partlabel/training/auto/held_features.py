"""Features of all images in memory, shared by all trainings of ``auto``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.images.batches import Inputs, Rows, in_batches
from partlabel.models.prediction import InputSource

_READ = 256  # images that are read at a time


@dataclass(frozen=True)
class HeldFeatures:
    """Features of n images; row i of a batch is image ``rows[i]``.

    Args:
        features: [m, ...] of the readable images.
        place: [n] the position of each image in ``features``, -1 for an unreadable one.
        rows: the images, so that a part of them has its own numbers from 0.
    """

    features: Tensor
    place: NDArray[np.int64]
    rows: Rows

    def part(self, rows: Rows) -> "HeldFeatures":
        """Some of the images, numbered from 0; the features are shared."""
        return HeldFeatures(self.features, self.place, self.rows[rows])

    @property
    def readable(self) -> NDArray[np.bool_]:
        """Whether each image could be decoded."""
        return np.asarray(self.place[self.rows] >= 0)

    def batches(
        self, rows: list[Rows], views: tuple[str, ...], epoch: int = 0, workers: int | None = None
    ) -> Iterator[Inputs]:
        """The inputs of batches of rows; all views are the clean one."""
        for part in rows:
            places = self.place[self.rows[part]]
            clean = self.features[torch.from_numpy(places[places >= 0])].float()
            yield Inputs(part[places >= 0], dict.fromkeys(views, clean))


def hold(source: InputSource, number: int, transform: Callable[[Tensor], Tensor]) -> HeldFeatures:
    """Read the clean views of images 0 to ``number`` - 1 into memory.

    Args:
        source: gives the maps of each image.
        transform: maps [b, ...] to what is kept of them.
    """
    parts, place, filled = [], np.full(number, -1, dtype=np.int64), 0
    for inputs in source.batches(in_batches(np.arange(number), _READ), ("clean",)):
        place[inputs.rows] = filled + np.arange(len(inputs.rows))
        filled += len(inputs.rows)
        with torch.no_grad():
            parts.append(transform(inputs.views["clean"]).cpu())
    return HeldFeatures(torch.cat(parts), place, np.arange(number))
