"""Heads: feature maps [B, D, H, W] to logits [B, C]."""

from torch import Tensor, nn


class Linear(nn.Module):
    """The mean of the map, then a linear layer.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.

    >>> import torch
    >>> Linear(8, 3)(torch.zeros(2, 8, 7, 7)).shape
    torch.Size([2, 3])
    """

    needs_maps = False
    """Only the mean of a map matters, so a cache may keep just that."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(features, classes)

    def forward(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C]."""
        logits: Tensor = self.classifier(maps.mean(dim=(2, 3)))
        return logits
