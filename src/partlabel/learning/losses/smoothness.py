"""Smoothness: similar images should have similar labels and features.

[1] Huynh and Elhamifar, Interactive Multi-Label CNN Learning with Partial Labels, CVPR 2020.
"""

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import mean, precise


def completed_labels(logits: Tensor, labels: Tensor, negative_scale: float = 0.5) -> Tensor:
    """The known labels, and 2 p - 1 where a label is unknown (Eq. 3 of [1]).

    Args:
        logits: [B, C]; they get a gradient where labels are unknown.
        labels: [B, C]
        negative_scale: factor on negative values, which gives the few present labels more weight.

    Returns:
        [B, C] from -negative_scale to 1

    >>> completed_labels(torch.zeros(1, 3), torch.tensor([[1, -1, 0]]))
    tensor([[ 1.0000, -0.5000,  0.0000]])
    """
    logits = precise(logits)
    completed = torch.where(labels == 0, torch.tanh(logits / 2), labels.to(logits.dtype))
    return torch.where(completed < 0, negative_scale * completed, completed)


def label_smoothness(labels: Tensor, explained: Tensor) -> Tensor:
    """Squared distance of labels to those predicted from similar images (Eq. 5 of [1]).

    (labels - tanh(explained))^2 is summed over classes and averaged over images.

    Args:
        labels: [B, C] completed labels.
        explained: [B, C] weighted sum of the labels of similar images, spread over the label graph.
    """
    return _mean_square(labels - torch.tanh(explained))


def feature_smoothness(features: Tensor, explained: Tensor) -> Tensor:
    """Squared distance of features to those predicted from similar images (Eq. 6 of [1]).

    It is summed over features and averaged over images.

    Args:
        features: [B, D]
        explained: [B, D] weighted sum of the features of similar images.
    """
    return _mean_square(precise(features) - precise(explained))


def graph_smoothness(logits: Tensor, others: Tensor, strength: Tensor) -> Tensor:
    """The Laplacian of a graph of images: squared differences between the logits of linked images.

    The mean over images, links and classes of strength * (z_i - z_j)^2.

    Args:
        logits: [B, C]
        others: [B, k] positions in the batch of the images that each image is linked to.
        strength: [B, k] of the links, 0 for none.

    >>> logits, others = torch.tensor([[1.0], [3.0]]), torch.tensor([[1], [0]])
    >>> graph_smoothness(logits, others, torch.tensor([[0.5], [0.0]]))
    tensor(1.)
    """
    logits = precise(logits)
    squares = (logits[:, None] - logits[others]).square()  # [B, k, C]
    return mean(strength[..., None].to(logits.dtype) * squares)


def _mean_square(difference: Tensor) -> Tensor:
    """The squared length of each row of a difference [B, n], averaged over rows."""
    return difference.square().sum() / max(len(difference), 1)
