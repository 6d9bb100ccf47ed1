"""Saliency: class maps whose highest places count twice.

[1] Wang et al., Saliency Regularization for Self-Training with Partial Annotations, ICCV 2023.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from partlabel.base.ranges import Dropout, Weight
from partlabel.models.heads.class_maps import MapHead


def saliency_pool(maps: Tensor, alpha: float = 0.5, k: int = 5) -> Tensor:
    """The mean of each map plus alpha times the mean of its k highest places (Eq. 3 to 5).

    Args:
        maps: [B, C, H, W]
        alpha: weight of the highest places.
        k: how many places; all if there are fewer.

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
    """Class maps from 0 to 1, each relative to its highest place (Eq. 1).

    A map without a positive place is 0 everywhere.
    """
    positive = class_maps.relu()
    highest = positive.amax(dim=(-2, -1), keepdim=True)
    return positive / highest.clamp(min=torch.finfo(positive.dtype).tiny)


class Saliency(MapHead):
    """The mean of each class map plus alpha times the mean of its k highest places [1].

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        alpha: weight of the highest places. Paper: 0.5.
        k: how many places. Paper: 5, of 14 x 14.
        dropout: share of the numbers of a feature map that are left out in training.
        salient_prediction: whether the highest places also count in evaluation mode.
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
        """See :func:`saliency_pool`."""
        counts = self.training or self.salient_prediction
        return saliency_pool(class_maps, self.alpha if counts else 0.0, self.k)
