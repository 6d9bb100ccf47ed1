"""How the calibrated logits of very many cells are spread: values, and how many cells have each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import PRESENT

Floats = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Spread:
    """The calibrated logits of cells, class by class, in bins.

    Bin b of class j has ``cells[j][b]`` cells, and the logit of each is at least ``low[j][b]`` and
    at most ``high[j][b]``. These are the same if every logit has a bin of its own.

    Args:
        low, high: [C] arrays of logits.
        cells: [C] arrays of numbers of cells.
    """

    low: list[Floats]
    high: list[Floats]
    cells: list[Integers]

    def __len__(self) -> int:
        return len(self.cells)

    def confidence(self, j: int, value: int) -> Floats:
        """The confidence of the cells of each bin in a value: at least this."""
        return self.low[j] if value == PRESENT else -self.high[j]

    def beyond(self, value: int, thresholds: NDArray[Any]) -> NDArray[np.int64]:
        """[C] the number of cells whose confidence in a value is at least a threshold [C]."""
        return np.array(
            [
                int(self.cells[j][self.confidence(j, value) >= threshold].sum())
                for j, threshold in enumerate(thresholds)
            ],
            dtype=np.int64,
        )


def spread_of(logits: NDArray[Any], chosen: NDArray[np.bool_]) -> Spread:
    """The spread of chosen cells [n, C] of logits [n, C]: each cell is a bin."""
    values = [logits[chosen[:, j], j] for j in range(logits.shape[1])]
    one = np.ones((), dtype=np.int64)
    return Spread(values, values, [np.broadcast_to(one, len(part)) for part in values])


def joined_spread(parts: Sequence[Spread], classes: int) -> Spread:
    """The spread of the cells of several parts together."""
    if len(parts) == 1:
        return parts[0]
    empty, none = np.empty(0), np.empty(0, dtype=np.int64)
    return Spread(
        [np.concatenate([empty, *(part.low[j] for part in parts)]) for j in range(classes)],
        [np.concatenate([empty, *(part.high[j] for part in parts)]) for j in range(classes)],
        [np.concatenate([none, *(part.cells[j] for part in parts)]) for j in range(classes)],
    )
