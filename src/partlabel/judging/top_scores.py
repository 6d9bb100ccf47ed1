"""How many present labels are among the highest scores of their image, block by block."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.labels import PRESENT
from partlabel.metrics import KnownCells, top_recall


class TopRecall:
    """The share of present labels whose class is among the k highest scores of their image.

    As :func:`metrics.top_recall`, for images that come in blocks.
    """

    def __init__(self, k: int) -> None:
        self.k, self.found, self.present = k, 0.0, 0

    def add(self, rows: NDArray[np.int64], logits: Tensor, cells: KnownCells) -> None:
        """Count the images of a block.

        Args:
            rows: [b]
            logits: [b, C]
            cells: the known labels of these rows.
        """
        chosen = cells.labels == PRESENT
        image = np.searchsorted(rows, cells.rows[chosen])
        own_row, column = torch.from_numpy(image), torch.from_numpy(cells.columns[chosen]).long()
        self.present += len(image)
        if logits.shape[1] <= self.k:
            self.found += len(image)
            return
        values = logits.cpu()
        own = values[own_row, column]
        last, limit = values.topk(self.k + 1).values[own_row, self.k - 1 :].unbind(dim=1)
        self.found += int((own > limit).sum())
        tied = (own == limit) & (last == limit)  # the last that counts with the first that is left
        for i in torch.nonzero(tied)[:, 0].tolist():
            label = np.zeros((1, values.shape[1]), dtype=np.int8)
            label[0, int(column[i])] = PRESENT
            self.found += top_recall(values[own_row[i]][None].numpy(), label, self.k)

    @property
    def share(self) -> float:
        """The share so far; NaN without present labels."""
        return self.found / self.present if self.present else math.nan
