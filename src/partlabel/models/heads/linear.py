"""The plainest head: the mean of the map, then a linear layer."""

from torch import Tensor, nn
from torch.nn.functional import conv2d

from partlabel.base.ranges import Dropout


class Linear(nn.Module):
    """The mean of the map, then a linear layer.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        dropout: share of the means that are left out in training.
        needs_maps: False if only the mean of a map matters, so that a cache may keep just that.

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
        """[B, D, H, W] to [B, C]."""
        logits: Tensor = self.classifier(self.dropout(maps.mean(dim=(2, 3))))
        return logits

    def class_maps(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C, H, W]: the logits of each place.

        Their mean is what :meth:`forward` gives without dropout.
        """
        return conv2d(maps, self.classifier.weight[:, :, None, None], self.classifier.bias)
