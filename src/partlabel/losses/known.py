"""Losses on known labels only."""

from typing import Literal

import torch
from torch import Tensor

from partlabel.losses.cells import cost_of_present, mean, precise

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
    logits, known = precise(logits), labels != 0
    cost = torch.where(known, cost_of_present(labels * logits), 0)
    if normalize == "classes":
        return mean(cost)
    if normalize == "batch":
        return cost.sum() / known.sum().clamp(min=1)
    return mean(cost.sum(dim=1) / known.sum(dim=1).clamp(min=1))


def batch_bce(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy on known labels, divided by their number in the batch."""
    return bce(logits, labels, normalize="batch")


def known_positives(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of -log p over the labels known to be present: how well a model learns what is sure."""
    present = labels > 0
    cost = torch.where(present, cost_of_present(precise(logits)), 0)
    return cost.sum() / present.sum().clamp(min=1)
