"""Labels of pictures that look alike should be alike.

[1] Huynh and Elhamifar, Interactive Multi-Label CNN Learning with Partial Labels, CVPR 2020.
"""

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import precise


def complete(logits: Tensor, labels: Tensor, negative_scale: float = 0.5) -> Tensor:
    """Labels where they are known, else what a model says of them: 2 p - 1 (Eq. 3 of [1]).

    Args:
        logits: [B, C], which get gradients where labels are unknown.
        labels: [B, C]
        negative_scale: factor on what is negative, so that the few present labels count for more.

    >>> complete(torch.zeros(1, 3), torch.tensor([[1, -1, 0]]))
    tensor([[ 1.0000, -0.5000,  0.0000]])
    """
    logits = precise(logits)
    full = torch.where(labels == 0, torch.tanh(logits / 2), labels.to(logits.dtype))
    return torch.where(full < 0, negative_scale * full, full)


def label_smoothness(labels: Tensor, explained: Tensor) -> Tensor:
    """How far labels are from those that other images make likely (Eq. 5 of [1]).

    The squared difference to the hyperbolic tangent, summed over classes, mean over images.

    Args:
        labels: [B, C] completed labels.
        explained: [B, C] sum of the labels of similar images, spread over the label graph.
    """
    return _squares(labels - torch.tanh(explained))


def feature_smoothness(features: Tensor, explained: Tensor) -> Tensor:
    """How far features are from a sum of those of similar images, both [B, D] (Eq. 6 of [1])."""
    return _squares(precise(features) - precise(explained))


def _squares(difference: Tensor) -> Tensor:
    return difference.square().sum() / max(len(difference), 1)
