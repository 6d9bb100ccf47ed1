"""Losses that take unknown labels for unknown: what they ask for is a certain entropy.

A label known to be absent costs -log(1 - p) in all of them.
"""

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import (
    cost_of_absent,
    cost_of_present,
    cross_entropy,
    entropy,
    mean,
    precise,
)


def entropy_maximization(logits: Tensor, labels: Tensor, alpha: float | Tensor = 0.2) -> Tensor:
    """EM: -log p on present labels, -alpha H(p) on unknown ones.

    The gradient on an unknown cell is alpha x p (1 - p) / (B C): none where the model has no
    opinion yet, and none where it is sure.

    Args:
        logits: [B, C]
        labels: [B, C]
        alpha: how much the entropy counts; a tensor [B, C] gives each cell a weight of its own.

    >>> entropy_maximization(torch.zeros(1, 2), torch.tensor([[1, 0]]), alpha=1.0)
    tensor(0.)
    """
    logits = precise(logits)
    return mean(torch.where(labels == 0, -alpha * entropy(logits), _known(logits, labels)))


def entropy_minimization(logits: Tensor, labels: Tensor, weight: float = 0.01) -> Tensor:
    """EntMin: -log p on present labels, weight * H(p) on unknown ones.

    Args:
        logits: [B, C]
        labels: [B, C]
        weight: how much the entropy counts.
    """
    return entropy_maximization(logits, labels, -weight)


def soft_negative(logits: Tensor, labels: Tensor, beta: float = 0.02, *, targets: Tensor) -> Tensor:
    """Soft cross-entropy on pseudo-labels: what APL adds to EM.

    Args:
        logits: [B, C]
        labels: [B, C] -1 where a cell has a pseudo-label; the others cost nothing here.
        beta: weight.
        targets: [B, C] from 0 to 1, what the model thought when the pseudo-label was given.
    """
    logits = precise(logits)
    cost = cross_entropy(logits, torch.where(labels < 0, targets, 0).to(logits.dtype))
    return beta * mean(torch.where(labels < 0, cost, 0))


def _known(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.where(labels > 0, cost_of_present(logits), cost_of_absent(logits))
