"""A graph network over classes that refines their logits.

[1] Durand et al., Learning a Deep ConvNet for Multi-label Classification with Partial Labels,
    CVPR 2019.
"""

import torch
from torch import Tensor, nn


class GraphRefiner(nn.Module):
    """Classes exchange messages about their logits, all with all, and correct them [1].

    The state of class v begins with its logit at place v and zeros elsewhere. In each step every
    class hears the mean of ReLU(FC(state)) over the *other* classes, and a GRU updates its state.
    The new logit is the old one plus what stands at place v in the end.

    All classes hear the same sum but for their own part, so a step costs one layer for each class,
    not one for each pair.

    Args:
        classes: C.
        steps: how often messages are exchanged. Paper: 3.
        hidden: length of a state if not C, for many classes: the state of v then begins as its
            logit times a learned vector, and another one reads it out.
        dropout: share of the numbers of messages that are left out in training.
    """

    def __init__(
        self, classes: int, steps: int = 3, hidden: int | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        size = classes if hidden is None else hidden
        self.steps = steps
        self.message = nn.Linear(size, size)
        self.update = nn.GRUCell(size, size)
        self.write = self.read = None
        if hidden is not None:
            self.write = nn.Parameter(torch.randn(classes, hidden) / hidden**0.5)
            self.read = nn.Parameter(torch.randn(classes, hidden) / hidden**0.5)

    def forward(self, logits: Tensor) -> Tensor:
        """[B, C] to [B, C]."""
        batch, classes = logits.shape
        state = torch.diag_embed(logits) if self.write is None else logits[..., None] * self.write
        for step in range(self.steps):
            said = self.dropout(torch.relu(self._say(logits, state, first=step == 0)))
            # all but oneself; a class alone hears nothing
            heard = (said.sum(dim=1, keepdim=True) - said) / max(classes - 1, 1)
            flat = self.update(heard.flatten(0, 1), state.flatten(0, 1))
            state = flat.view(batch, classes, -1)
        if self.read is None:
            return logits + torch.diagonal(state, dim1=1, dim2=2)
        return logits + (state * self.read).sum(dim=2)

    def _say(self, logits: Tensor, state: Tensor, *, first: bool) -> Tensor:
        """FC(state) [B, C, size]; at first a state has one number, so it needs no product."""
        if first and self.write is None:
            return logits[..., None] * self.message.weight.t() + self.message.bias
        said: Tensor = self.message(state)
        return said


class Refined(nn.Module):
    """A head whose logits are refined.

    Args:
        head: maps to logits.
        refiner: logits to logits.
    """

    def __init__(self, head: nn.Module, refiner: nn.Module) -> None:
        super().__init__()
        self.head, self.refiner = head, refiner

    @property
    def needs_maps(self) -> bool:
        """As the head does."""
        return bool(getattr(self.head, "needs_maps", True))

    def forward(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C]."""
        logits: Tensor = self.refiner(self.head(maps))
        return logits
