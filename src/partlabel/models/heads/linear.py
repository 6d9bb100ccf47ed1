"""Global average pooling and a linear layer."""

from torch import Tensor, nn
from torch.nn.functional import conv2d

from partlabel.base.ranges import Dropout


class Linear(nn.Module):
    """Global average pooling, then a linear layer.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        dropout: probability that a pooled feature is set to 0 in training.
        needs_maps: whether the head must get whole maps. If False, a cache may store the mean of
            each map instead.

    >>> import torch
    >>> Linear(8, 3)(torch.zeros(2, 8, 7, 7)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, features: int, classes: int, dropout: Dropout = 0.0, *, needs_maps: bool = False
    ) -> None:
        super().__init__()
        self.needs_maps = needs_maps
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(features, classes)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        logits: Tensor = self.classifier(self.dropout(maps.mean(dim=(2, 3))))
        return logits

    def class_maps(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to the logits at each position [B, C, H, W].

        Their mean over positions is the result of :meth:`forward` without dropout.
        """
        return conv2d(maps, self.classifier.weight[:, :, None, None], self.classifier.bias)
