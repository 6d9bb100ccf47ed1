"""A buffer of the rows of tensors of the last steps."""

from typing import Any

import torch
from torch import Tensor, nn


class Recent(nn.Module):
    """The most recent rows of some named tensors, saved with the method.

    Args:
        size: number of rows to keep.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.parts: dict[str, Tensor] = {}

    def before(self, **parts: Tensor) -> dict[str, Tensor]:
        """The given rows [n, ...] of each tensor, followed by the stored rows [m, ...]."""
        return {
            name: torch.cat([part, self.parts[name].to(part)]) if name in self.parts else part
            for name, part in parts.items()
        }

    def push(self, **parts: Tensor) -> None:
        """Store rows [n, ...] of each tensor; they replace the oldest ones."""
        self.parts = {
            name: part.detach()[: self.size]
            for name, part in self.before(**{n: part.detach() for n, part in parts.items()}).items()
        }

    def get_extra_state(self) -> dict[str, Tensor]:
        """The stored rows, for a checkpoint."""
        return self.parts

    def set_extra_state(self, state: Any) -> None:
        """Restore the rows of a checkpoint."""
        self.parts = state
