"""Blended feature vectors: an image borrows a present label from another, or from a prototype.

[1] Pu et al., Semantic-Aware Representation Blending for Multi-Label Image Recognition with Partial
    Labels, AAAI 2022.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import cross_entropy, over_processes, precise


class Blended(NamedTuple):
    """Feature vectors and their labels.

    Args:
        features: [B, C, d] one feature vector per class.
        targets: [B, C] from 0 to 1.
        counted: [B, C] which labels are known or blended.
    """

    features: Tensor
    targets: Tensor
    counted: Tensor


def blend_with(
    features: Tensor, labels: Tensor, others: Tensor, chosen: Tensor, share: Tensor
) -> Blended:
    """Blend chosen feature vectors with others, in which the class is present [1].

    A blended vector is share times the vector plus 1 - share times the other one, and its target is
    1 - share.

    Args:
        features: [B, C, d] one feature vector per class.
        labels: [B, C]
        others: [B, C, d] the vectors to blend with.
        chosen: [B, C] which unknown labels to blend.
        share: scalar from 0 to 1.

    >>> one, other = torch.zeros(1, 1, 2), torch.ones(1, 1, 2)
    >>> chosen = torch.tensor([[True]])
    >>> blend_with(one, torch.zeros(1, 1), other, chosen, torch.tensor(0.75)).features
    tensor([[[0.2500, 0.2500]]])
    """
    share = share.to(features.dtype)
    blended = torch.where(chosen[..., None], torch.lerp(others, features, share), features)
    targets = torch.where(chosen, 1 - share, (labels > 0).to(features.dtype))
    return Blended(blended, targets, (labels != 0) | chosen)


def blend_images(features: Tensor, labels: Tensor, share: Tensor) -> Blended:
    """Blend each image with another one, the first with the last [1].

    Chosen are labels that are unknown in the image and known to be present in the other.

    Args:
        features: [B, C, d] one feature vector per class.
        labels: [B, C]
        share: of the image's own vector, a scalar from 0 to 1.
    """
    chosen = (labels == 0) & (labels.flip(0) > 0)
    return blend_with(features, labels, features.flip(0), chosen, share)


def soft_bce(logits: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
    """Cross-entropy of the labels that are counted, divided by their number; 0 if there are none.

    Args:
        logits: [B, C]
        targets: [B, C] from 0 to 1.
        counted: [B, C]
    """
    logits = precise(logits)
    cost = torch.where(counted, cross_entropy(logits, targets.to(logits.dtype)), 0)
    return cost.sum() / over_processes(counted.sum())


def choose_unknown(labels: Tensor, available: Tensor) -> Tensor:
    """[B, C] one random unknown label of each image, of classes that are available.

    Args:
        labels: [B, C]
        available: [C]
    """
    allowed = (labels == 0) & available
    draws = torch.where(allowed, torch.rand(labels.shape, device=labels.device), -1.0)
    if not labels.shape[1]:
        return allowed
    chosen = torch.zeros_like(allowed).scatter(1, draws.argmax(dim=1, keepdim=True), True)
    return chosen & allowed
