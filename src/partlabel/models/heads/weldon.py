"""Pooling of class maps by their highest and lowest places.

[1] Durand et al., WELDON: Weakly Supervised Learning of Deep Convolutional Neural Networks,
    CVPR 2016; as used by Durand et al., Learning a Deep ConvNet for Multi-label Classification with
    Partial Labels, CVPR 2019.
"""

from torch import Tensor, nn

from partlabel.errors import InputError


def weldon_pool(maps: Tensor, k_max: float = 0.1, k_min: float = 0.1) -> Tensor:
    """Half the mean of the highest and half the mean of the lowest scores of each map.

    Args:
        maps: [B, C, H, W]
        k_max, k_min: how many places: a share of them below 1, else a number.

    Returns:
        [B, C]

    >>> import torch
    >>> weldon_pool(torch.tensor([[[[4.0, 2.0], [1.0, -1.0]]]]), k_max=2, k_min=1)
    tensor([[1.]])
    """
    flat = maps.flatten(2)
    places = flat.shape[2]
    high = flat.topk(_number(k_max, places), dim=2).values.mean(dim=2)
    low = flat.topk(_number(k_min, places), dim=2, largest=False).values.mean(dim=2)
    return (high + low) / 2


def _number(k: float, places: int) -> int:
    if k <= 0 or (k > 1 and k != int(k)):
        raise InputError(f"k is {k}; it must be a share or a number of places")
    return max(1, round(k * places)) if k < 1 else min(int(k), places)


class Weldon(nn.Module):
    """A class map for each class, pooled by its highest and lowest places [1].

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        k_max, k_min: see :func:`weldon_pool`. Paper: 0.1.
        dropout: share of the numbers of a feature map that are left out in training.
    """

    needs_maps = True

    def __init__(
        self,
        features: int,
        classes: int,
        k_max: float = 0.1,
        k_min: float = 0.1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Conv2d(features, classes, kernel_size=1)
        self.k_max, self.k_min = k_max, k_min

    def class_maps(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C, H, W]."""
        scores: Tensor = self.classifier(maps)
        return scores

    def forward(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C]."""
        return weldon_pool(self.class_maps(self.dropout(maps)), self.k_max, self.k_min)
