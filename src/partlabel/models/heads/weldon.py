"""Pooling of class maps by their highest and lowest values.

[1] Durand et al., WELDON: Weakly Supervised Learning of Deep Convolutional Neural Networks,
    CVPR 2016; as used by Durand et al., Learning a Deep ConvNet for Multi-label Classification with
    Partial Labels, CVPR 2019.
"""

from torch import Tensor

from partlabel.base.errors import InputError
from partlabel.base.ranges import Dropout, Rate
from partlabel.models.heads.class_maps import MapHead


def weldon_pool(maps: Tensor, k_max: float = 0.1, k_min: float = 0.1) -> Tensor:
    """Half the mean of the highest values of each map plus half the mean of its lowest values.

    Args:
        maps: [B, C, H, W]
        k_max, k_min: how many of the highest and lowest values: a share of all if below 1, else a
            number.

    Returns:
        [B, C]

    >>> import torch
    >>> weldon_pool(torch.tensor([[[[4.0, 2.0], [1.0, -1.0]]]]), k_max=2, k_min=1)
    tensor([[1.]])
    """
    flat = maps.flatten(2)
    size = flat.shape[2]
    high = flat.topk(_number(k_max, size), dim=2).values.mean(dim=2)
    low = flat.topk(_number(k_min, size), dim=2, largest=False).values.mean(dim=2)
    return (high + low) / 2


def _number(k: float, size: int) -> int:
    """How many of ``size`` values the setting ``k`` stands for."""
    if k <= 0 or (k > 1 and k != int(k)):
        raise InputError(
            f"k is {k}; it must be a share between 0 and 1 or a whole number of positions"
        )
    return max(1, round(k * size)) if k < 1 else min(int(k), size)


class Weldon(MapHead):
    """One map per class, pooled by its highest and lowest values [1].

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        k_max, k_min: see :func:`weldon_pool`. Paper: 0.1.
        dropout: probability that a number of the feature map is set to 0 in training.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        k_max: Rate = 0.1,
        k_min: Rate = 0.1,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__(features, classes, dropout)
        self.k_max, self.k_min = k_max, k_min

    def pool(self, class_maps: Tensor) -> Tensor:
        """Class maps [B, C, H, W] to logits [B, C]; see :func:`weldon_pool`."""
        return weldon_pool(class_maps, self.k_max, self.k_min)
