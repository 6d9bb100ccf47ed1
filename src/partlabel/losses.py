"""Losses on logits and partial labels, as free functions.

All take ``logits`` [B, C] and ``labels`` [B, C] in {-1, 0, 1} (absent, unknown, present), and
return a scalar. They are computed from logits, so they are exact and finite for any logit.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Normalize = Literal["classes", "batch", "image"]


def bce(logits: Tensor, labels: Tensor, normalize: Normalize = "classes") -> Tensor:
    """Binary cross-entropy on known labels.

    Args:
        logits: [B, C]
        labels: [B, C]
        normalize: what the sum over known labels is divided by: ``"classes"`` B * C; ``"batch"``
            the number of known labels in the batch; ``"image"`` the number in each image, and then
            the mean over the batch. Where nothing is known the loss is 0.

    >>> bce(torch.zeros(1, 2), torch.tensor([[1, 0]]))
    tensor(0.3466)
    >>> bce(torch.zeros(1, 2), torch.tensor([[1, 0]]), normalize="batch")
    tensor(0.6931)
    """
    signs = labels.to(logits.dtype)
    known = signs != 0
    cost = torch.where(known, -logsigmoid(signs * logits), 0)
    if normalize == "classes":
        return cost.sum() / max(cost.numel(), 1)
    if normalize == "batch":
        return cost.sum() / known.sum().clamp(min=1)
    return (cost.sum(dim=1) / known.sum(dim=1).clamp(min=1)).sum() / max(len(cost), 1)


def batch_bce(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy on known labels, divided by their number in the batch."""
    return bce(logits, labels, normalize="batch")


def assume_negative(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy in which unknown labels count as absent.

    Args:
        logits: [B, C]
        labels: [B, C]

    >>> assume_negative(torch.zeros(1, 2), torch.tensor([[1, 0]]))
    tensor(0.6931)
    """
    return bce(logits, torch.where(labels > 0, 1, -1))
