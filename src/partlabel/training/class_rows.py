"""Classes that keep their own best epoch: rows of weights from different epochs."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.models.heads import HEADS, HasClassRows


def check_rows(head: nn.Module) -> None:
    """Raise an error for a head whose classes share weights."""
    if not isinstance(head, HasClassRows):
        able = ", ".join(name for name, kind in HEADS.items() if issubclass(kind, HasClassRows))
        raise InputError(
            "this method trains each class apart, which needs a head whose classes share no "
            f"weights: {able}, and no --teacher"
        )


def take_rows(
    best: dict[str, Tensor], now: dict[str, Tensor], better: NDArray[np.bool_]
) -> dict[str, Tensor]:
    """The weights ``best``, with those of some classes from ``now``.

    Args:
        best, now: the trained weights of a model whose head has one row per class.
        better: [C] the classes whose rows come from ``now``.
    """
    if not better.any():
        return best
    chosen = torch.from_numpy(better)

    def rows(name: str, before: Tensor) -> Tensor:
        if not name.startswith("head."):
            return before
        shape = (-1, *[1] * (before.ndim - 1))
        return torch.where(chosen.to(before.device).reshape(shape), now[name], before)

    return {name: rows(name, before) for name, before in best.items()}
