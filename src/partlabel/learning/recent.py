"""What was seen in the last steps, whatever it is."""

from typing import Any

import torch
from torch import Tensor, nn


class Recent(nn.Module):
    """The last so many rows of some tensors, saved with the method.

    Args:
        size: how many rows.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.parts: dict[str, Tensor] = {}

    def before(self, **parts: Tensor) -> dict[str, Tensor]:
        """These rows, with the remembered ones after them."""
        return {
            name: torch.cat([part, self.parts[name].to(part)]) if name in self.parts else part
            for name, part in parts.items()
        }

    def push(self, **parts: Tensor) -> None:
        """Remember rows; the oldest make room."""
        self.parts = {
            name: part.detach()[: self.size]
            for name, part in self.before(**{n: part.detach() for n, part in parts.items()}).items()
        }

    def get_extra_state(self) -> dict[str, Tensor]:
        """All rows."""
        return self.parts

    def set_extra_state(self, state: Any) -> None:
        """Go on with these rows."""
        self.parts = state
