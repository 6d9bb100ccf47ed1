"""A graph neural network over classes that refines their logits.

[1] Durand et al., Learning a Deep ConvNet for Multi-label Classification with Partial Labels,
    CVPR 2019.
"""

import torch
from torch import Tensor, nn

from partlabel.models.heads.head import Head, needs_maps


class GraphRefiner(nn.Module):
    """Message passing on the complete graph of classes; the result is added to the logits [1].

    The initial state of class v is a vector of length C with its logit at index v and zeros
    elsewhere. In each step every class receives the mean of ReLU(FC(state)) over the *other*
    classes, and a GRU updates its state. The refined logit is the logit plus entry v of the final
    state.

    The messages to all classes are computed from one sum, minus the class's own part. So a step
    applies FC once per class, not once per pair of classes.

    Args:
        classes: C, number of logits.
        steps: number of message passing steps. Paper: 3.
        hidden: length of a state, for many classes; None for C. The initial state of a class is
            then its logit times a learned vector, and the product of the final state with another
            learned vector is added to the logit.
        dropout: probability that a number of a message is set to 0 in training.
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
        """Logits [B, C] to refined logits [B, C]."""
        batch, classes = logits.shape
        state = torch.diag_embed(logits) if self.write is None else logits[..., None] * self.write
        for step in range(self.steps):
            sent = self.dropout(torch.relu(self._messages(logits, state, first=step == 0)))
            # the mean over all other classes; 0 if there is only one class
            received = (sent.sum(dim=1, keepdim=True) - sent) / max(classes - 1, 1)
            flat = self.update(received.flatten(0, 1), state.flatten(0, 1))
            state = flat.view(batch, classes, -1)
        if self.read is None:
            return logits + torch.diagonal(state, dim1=1, dim2=2)
        return logits + (state * self.read).sum(dim=2)

    def _messages(self, logits: Tensor, state: Tensor, *, first: bool) -> Tensor:
        """FC(state) [B, C, size] of states [B, C, size].

        The initial state has a single entry that is not 0, so no matrix product is needed.
        """
        if first and self.write is None:
            return logits[..., None] * self.message.weight.t() + self.message.bias
        messages: Tensor = self.message(state)
        return messages


class Refined(Head):
    """A head followed by a refiner.

    Args:
        head: feature maps [B, D, H, W] to logits [B, C].
        refiner: logits [B, C] to logits [B, C].
    """

    def __init__(self, head: nn.Module, refiner: nn.Module) -> None:
        super().__init__()
        self.head, self.refiner = head, refiner

    @property
    def needs_maps(self) -> bool:
        """Whether the head needs maps; see :class:`Head`."""
        return needs_maps(self.head)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        logits: Tensor = self.refiner(self.head(maps))
        return logits
