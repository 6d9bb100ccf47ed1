"""Saliency: pooling of class maps in which the highest positions have additional weight.

[1] Wang et al., Saliency Regularization for Self-Training with Partial Annotations, ICCV 2023.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from partlabel.base.ranges import Dropout, Weight
from partlabel.models.heads.class_maps import MapHead


def saliency_pool(maps: Tensor, alpha: float = 0.5, k: int = 5) -> Tensor:
    """The mean of each map plus alpha times the mean of its k highest values (Eq. 3 to 5).

    Args:
        maps: [B, C, H, W]
        alpha: weight of the highest values.
        k: number of highest values, at most H * W.

    Returns:
        [B, C]

    >>> import torch
    >>> saliency_pool(torch.tensor([[[[4.0, 2.0], [1.0, -1.0]]]]), alpha=0.5, k=2)
    tensor([[3.]])
    """
    flat = maps.flatten(2)
    if not alpha:
        return flat.mean(dim=2)
    highest = flat.topk(min(k, flat.shape[2]), dim=2, sorted=False).values
    return flat.mean(dim=2) + alpha * highest.mean(dim=2)


def heat_maps(class_maps: Tensor) -> Tensor:
    """Class maps scaled to 0 to 1 (Eq. 1).

    Negative values become 0, then each map is divided by its maximum. A map without positive values
    becomes 0.

    Args:
        class_maps: [..., H, W]
    """
    positive = class_maps.relu()
    highest = positive.amax(dim=(-2, -1), keepdim=True)
    return positive / highest.clamp(min=torch.finfo(positive.dtype).tiny)


class Saliency(MapHead):
    """The mean of each class map plus alpha times the mean of its k highest values [1].

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        alpha: weight of the highest values. Paper: 0.5.
        k: number of highest values. Paper: 5.
        dropout: probability that a number of the feature map is set to 0 in training.
        salient_prediction: whether to add the highest values in evaluation mode too.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        alpha: Weight = 0.5,
        k: Annotated[int, Field(ge=1)] = 5,
        dropout: Dropout = 0.0,
        salient_prediction: bool = True,
    ) -> None:
        super().__init__(features, classes, dropout)
        self.alpha, self.k, self.salient_prediction = alpha, k, salient_prediction

    def pool(self, class_maps: Tensor) -> Tensor:
        """Class maps [B, C, H, W] to logits [B, C]; see :func:`saliency_pool`."""
        salient = self.training or self.salient_prediction
        return saliency_pool(class_maps, self.alpha if salient else 0.0, self.k)
