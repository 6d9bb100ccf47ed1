"""A queue of embeddings of earlier steps."""

import torch
from torch import Tensor, nn


class EmbeddingQueue(nn.Module):
    """The most recent pairs of embeddings with their classes: a ring buffer, saved with the method.

    Args:
        size: K, number of pairs.
        width: d, length of an embedding.
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
        """All embeddings [2 m, d] and their classes [2 m], in no particular order."""
        filled = min(int(self.pushed), self.size)
        return self.pairs[:filled].flatten(0, 1), self.classes[:filled].repeat_interleave(2)

    @torch.no_grad()
    def push(self, pairs: Tensor, classes: Tensor) -> None:
        """Add pairs; they replace the oldest ones.

        Args:
            pairs: [n, 2, d]
            classes: [n]
        """
        new = min(len(pairs), self.size)
        if not new:
            return
        first = self.pushed + len(pairs) - new
        index = (first + torch.arange(new, device=first.device)) % self.size
        self.pairs[index] = pairs[-new:].to(self.pairs.dtype)
        self.classes[index] = classes[-new:]
        self.pushed += len(pairs)
