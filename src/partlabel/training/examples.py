"""The examples that a training uses: rows of a label table, and where their inputs come from."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base.randomness import key, keys, mixed_keys, uniform_of_mixed
from partlabel.images.batches import Rows, in_batches
from partlabel.labels import LabelTable
from partlabel.models.prediction import InputSource

_SMALL_TABLE = 1 << 26  # cells of a table that is kept dense, one byte each
_SMALLER_TABLE = 1 << 24  # cells of one that is kept as floats, as losses need it


@dataclass
class Examples:
    """Rows of a table, and where their inputs come from."""

    table: LabelTable
    inputs: InputSource
    rows: Rows

    def shuffled_batches(self, seed: int, epoch: int, size: int) -> list[Rows]:
        """All rows in the order of an epoch, in batches of ``size``.

        A last batch of a single image has no batch statistics, so it is joined to the one before.
        """
        draws = uniform_of_mixed(key(seed, "order", epoch), self._row_keys)
        batches = in_batches(self.rows[np.argsort(draws, kind="stable")], size)
        if len(batches) > 1 and len(batches[-1]) == 1:
            batches[-2:] = [np.concatenate(batches[-2:])]
        return batches

    def labels_of(self, rows: Rows) -> Tensor:
        """The labels [B, C] of some rows of the table."""
        if self._dense_table is not None:
            return self._dense_table[torch.from_numpy(rows)]
        return torch.from_numpy(self.table.dense(rows))

    @cached_property
    def _row_keys(self) -> NDArray[Any]:
        return mixed_keys(keys(self.table.ids)[self.rows])

    @cached_property
    def _dense_table(self) -> Tensor | None:
        cells = math.prod(self.table.shape)
        if cells > _SMALL_TABLE:
            return None
        dense = torch.from_numpy(self.table.dense())
        return dense.float() if cells <= _SMALLER_TABLE else dense
