"""Pooling of class maps by their highest and lowest places.

[1] Durand et al., WELDON: Weakly Supervised Learning of Deep Convolutional Neural Networks,
    CVPR 2016; as used by Durand et al., Learning a Deep ConvNet for Multi-label Classification with
    Partial Labels, CVPR 2019.
"""

from torch import Tensor

from partlabel.base.errors import InputError
from partlabel.base.ranges import Dropout, Rate
from partlabel.models.heads.class_maps import MapHead


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


class Weldon(MapHead):
    """A class map for each class, pooled by its highest and lowest places [1].

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        k_max, k_min: see :func:`weldon_pool`. Paper: 0.1.
        dropout: share of the numbers of a feature map that are left out in training.
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
        """See :func:`weldon_pool`."""
        return weldon_pool(class_maps, self.k_max, self.k_min)
