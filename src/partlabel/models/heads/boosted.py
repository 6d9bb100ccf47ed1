"""Pooling of class maps whose positive scores are multiplied.

[1] Kim et al., Bridging the Gap between Model Explanations in Partially Annotated Multi-label
    Classification, CVPR 2023.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from partlabel.base.ranges import Dropout
from partlabel.models.heads.class_maps import MapHead


def boosted_pool(maps: Tensor, alpha: float = 5.0) -> Tensor:
    """The mean of each map, whose positive values are multiplied by alpha (BoostLU).

    Args:
        maps: [B, C, H, W]
        alpha: factor of positive values, at least 1.

    Returns:
        [B, C]

    >>> boosted_pool(torch.tensor([[[[2.0, -1.0]]]]), alpha=3.0)
    tensor([[2.5000]])
    """
    return torch.maximum(maps, alpha * maps).mean(dim=(2, 3))


class Boosted(MapHead):
    """The mean of each class map, whose positive values are multiplied by alpha (BoostLU) [1].

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        alpha: factor of positive values; 1 is the mean. Paper: 5.
        dropout: probability that a number of the feature map is set to 0 in training.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        alpha: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 5.0,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__(features, classes, dropout)
        self.alpha = alpha

    def pool(self, class_maps: Tensor) -> Tensor:
        """Class maps [B, C, H, W] to logits [B, C]; see :func:`boosted_pool`."""
        return boosted_pool(class_maps, self.alpha)
