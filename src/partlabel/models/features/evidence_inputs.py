"""Feature maps with the scores of teachers as further channels."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.images.batches import Inputs, Rows
from partlabel.models.prediction import InputSource, ReadsBlocks


class Scores(Protocol):
    """Scores of teachers, read on demand."""

    def read(self, rows: Rows) -> NDArray[np.float32]:
        """[b, 2, T, C] scores, and whether there is one."""


class EvidenceInputs:
    """The inputs of another source, each with the scores of its image; see ``WithEvidence``."""

    def __init__(self, inputs: InputSource, scores: Scores) -> None:
        self.inputs, self.scores = inputs, scores
        self.block = inputs.block if isinstance(inputs, ReadsBlocks) else 1

    def batches(
        self, rows: list[Rows], views: tuple[str, ...], epoch: int = 0, workers: int | None = None
    ) -> Iterator[Inputs]:
        """The inputs of these batches, in this order."""
        for part in self.inputs.batches(rows, views, epoch, workers):
            scores = torch.from_numpy(self.scores.read(part.rows)).flatten(1)[:, :, None, None]
            joined = {name: _join(maps, scores) for name, maps in part.views.items()}
            yield Inputs(part.rows, joined, part.broken)


def _join(maps: Tensor, scores: Tensor) -> Tensor:
    return torch.cat([maps, scores.expand(-1, -1, *maps.shape[2:])], dim=1)
