"""A head whose logits also rest on the scores of other models."""

import torch
from torch import Tensor, nn

from partlabel.models.heads.head import Head, needs_maps

# Standard deviations of the normal priors of the weights, in logits per standard deviation of a
# score. All are centred at 0: without labels that speak for a teacher, it is ignored.
_SHARED, _OWN, _OFFSET = 1.0, 0.25, 0.25


class WithEvidence(Head):
    """A head, and a weight and an offset per teacher and class that are added to its logits.

    The logit of class c of an image is that of the head plus the sum over the teachers t that have
    a score s of it of (shared[t] + own[t, c]) * (s - mean[t, c]) / deviation[t, c] + offset[t, c].
    A penalty draws the weights and the offsets to 0. Without scores, the logits are those of the
    head.

    Args:
        head: feature maps [B, D, H, W] to logits [B, C].
        features: D, channels of the feature map. In an input with teachers, 2 T C further channels
            follow: the score of each teacher and class, and whether there is one.
        teachers, classes: T and C.
    """

    mean: Tensor
    deviation: Tensor
    labels: Tensor

    def __init__(self, head: nn.Module, features: int, teachers: int, classes: int) -> None:
        super().__init__()
        self.head, self.features, self.shape = head, features, (2, teachers, classes)
        # all have two dimensions, so that weight decay shrinks them as it shrinks the head: else a
        # useless teacher would outweigh a head with small weights
        self.shared = nn.Parameter(torch.zeros(teachers, 1))
        self.own = nn.Parameter(torch.zeros(teachers, classes))
        self.offset = nn.Parameter(torch.zeros(teachers, classes))
        self.register_buffer("mean", torch.zeros(teachers, classes))
        self.register_buffer("deviation", torch.ones(teachers, classes))
        self.register_buffer("labels", torch.ones(()))

    def standardise(self, mean: Tensor, deviation: Tensor, labels: int) -> None:
        """Set the scale of the scores [T, C], and the number of known training labels."""
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)
        self.labels.fill_(max(labels, 1))

    @property
    def needs_maps(self) -> bool:
        """Whether the head needs maps; see :class:`Head`."""
        return needs_maps(self.head)

    def forward(self, maps: Tensor, without: int | None = None) -> Tensor:
        """Feature maps [B, D or D + 2 T C, H, W] to logits [B, C].

        Args:
            without: the number of a teacher to leave out.
        """
        logits: Tensor = self.head(maps[:, : self.features])
        if maps.shape[1] == self.features:
            return logits
        scores, known = maps[:, self.features :, 0, 0].reshape(-1, *self.shape).unbind(1)
        evidence = self.weights() * (scores - self.mean) / self.deviation + self.offset
        evidence = torch.where(known > 0, evidence, 0.0)
        if without is not None:
            evidence = evidence.index_fill(1, torch.tensor([without], device=maps.device), 0.0)
        return logits + evidence.sum(dim=1)

    def weights(self) -> Tensor:
        """[T, C] logits per standard deviation of a score."""
        return self.shared + self.own

    def penalty(self) -> Tensor:
        """What draws the weights to 0, on the scale of a loss that is a mean over known labels."""
        squares = (
            (self.shared / _SHARED).square().sum()
            + (self.own / _OWN).square().sum()
            + (self.offset / _OFFSET).square().sum()
        )
        return squares / (2 * self.labels)
