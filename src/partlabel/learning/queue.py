"""What was seen in earlier steps."""

import torch
from torch import Tensor, nn


class EmbeddingQueue(nn.Module):
    """The last so many pairs of embeddings and their class: a ring, saved with the method.

    Args:
        size: K, how many pairs.
        width: of an embedding.
    """

    pairs: Tensor
    classes: Tensor
    pushed: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("pairs", torch.zeros(size, 2, width))
        self.register_buffer("classes", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("pushed", torch.zeros((), dtype=torch.int64))

    def read(self) -> tuple[Tensor, Tensor]:
        """All embeddings [2 m, d] and their classes [2 m], in no order that means anything."""
        held = min(int(self.pushed), self.size)
        return self.pairs[:held].flatten(0, 1), self.classes[:held].repeat_interleave(2)

    @torch.no_grad()
    def push(self, pairs: Tensor, classes: Tensor) -> None:
        """Add pairs [n, 2, d] and classes [n]; the oldest make room."""
        new = min(len(pairs), self.size)
        if not new:
            return
        first = self.pushed + len(pairs) - new
        at = (first + torch.arange(new, device=first.device)) % self.size
        self.pairs[at] = pairs[-new:].to(self.pairs.dtype)
        self.classes[at] = classes[-new:]
        self.pushed += len(pairs)
