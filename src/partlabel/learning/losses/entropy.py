"""Losses that reward or penalise the entropy of unknown labels, and assume no value for them.

In the two entropy losses a label known to be absent costs -log(1 - p).
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

    The gradient at an unknown cell with logit x is alpha x p (1 - p) / (B C). It vanishes both
    where the model is undecided (x = 0) and where it is certain.

    Args:
        logits: [B, C]
        labels: [B, C]
        alpha: weight of the entropy; a tensor [B, C] gives each cell its own weight.

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
        weight: weight of the entropy.
    """
    return entropy_maximization(logits, labels, -weight)


def soft_negative(logits: Tensor, labels: Tensor, beta: float = 0.02, *, targets: Tensor) -> Tensor:
    """Cross-entropy with soft targets on pseudo-labels: the term that APL adds to EM.

    Args:
        logits: [B, C]
        labels: [B, C], -1 for cells with a pseudo-label; all other cells cost 0.
        beta: weight of the loss.
        targets: [B, C] from 0 to 1, the score of the model when it gave the pseudo-label.
    """
    logits = precise(logits)
    cost = cross_entropy(logits, torch.where(labels < 0, targets, 0).to(logits.dtype))
    return beta * mean(torch.where(labels < 0, cost, 0))


def _known(logits: Tensor, labels: Tensor) -> Tensor:
    """The cost of each cell [B, C]; only the cells with a known label are used."""
    return torch.where(labels > 0, cost_of_present(logits), cost_of_absent(logits))
