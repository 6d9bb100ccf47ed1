"""Losses for unknown labels that are mostly absent: some of the costs are tempered or changed."""

import math

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import (
    cost_of_absent,
    cost_of_present,
    likeliest,
    mean,
    precise,
)


def tempered(cost: Tensor, q: float) -> Tensor:
    """The generalised cross-entropy (1 - e^(-q cost)) / q of a cost -log p: bounded by 1 / q.

    Args:
        cost: -log of a probability, any shape.
        q: 0 gives the cost itself, 1 gives 1 - p.

    >>> tempered(torch.tensor([0.0, 1.0]), 0.0), tempered(torch.tensor([0.0, 1.0]), 1.0)
    (tensor([0., 1.]), tensor([0.0000, 0.6321]))
    """
    return cost if q == 0 else -torch.expm1(-q * cost) / q


def generalized_robust(
    logits: Tensor,
    labels: Tensor,
    w: float = 0.0,
    b: float = -2.0,
    mu: float = 0.5,
    sigma: float = 2.0,
    q2: float = 0.01,
    q3: float = 1.0,
) -> Tensor:
    """Generalised robust loss (GR): an unknown label is present with a share that grows with p.

    The cost of an unknown label is v (k L2 + (1 - k) L3), where L2 and L3 are the tempered costs of
    a present and of an absent label, k = sigmoid(w p + b) and v = exp(-(p - mu)^2 / (2 sigma^2)).
    k and v are weights and get no gradient. Known labels have cross-entropy.

    Args:
        logits: [B, C]
        labels: [B, C]
        w, b: slope and offset of k.
        mu, sigma: centre and width of v.
        q2, q3: how far the costs of present and absent labels are tempered, see :func:`tempered`.

    >>> generalized_robust(torch.zeros(1, 1), torch.zeros(1, 1), b=0.0, q2=1.0)
    tensor(0.5000)
    """
    logits = precise(logits)
    present, absent = cost_of_present(logits), cost_of_absent(logits)
    probability = torch.sigmoid(logits.detach())
    share = torch.sigmoid(w * probability + b)
    weight = torch.exp(-((probability - mu) ** 2) / (2 * sigma**2))
    unknown = weight * (share * tempered(present, q2) + (1 - share) * tempered(absent, q3))
    return mean(torch.where(labels > 0, present, torch.where(labels < 0, absent, unknown)))


def large_loss(
    logits: Tensor, labels: Tensor, share: float = 0.0, *, correct: bool = False
) -> Tensor:
    """Unknown labels count as absent, except for those with the largest costs (LL).

    Args:
        logits: [B, C]
        labels: [B, C]
        share: how many labels are excepted, as a share of all B * C labels, rounded up.
        correct: whether these count as present (LL-Ct), instead of not at all (LL-R).

    >>> x = torch.tensor([[0.0, 9.0]])
    >>> large_loss(x, torch.zeros(1, 2), 0.5), large_loss(x, torch.zeros(1, 2), 0.5, correct=True)
    (tensor(0.3466), tensor(0.3466))
    """
    logits = precise(logits)
    present, absent = cost_of_present(logits), cost_of_absent(logits)
    excepted = likeliest(logits, labels, math.ceil(share * labels.numel()))
    unknown = torch.where(excepted, present if correct else torch.zeros_like(present), absent)
    return mean(torch.where(labels > 0, present, torch.where(labels < 0, absent, unknown)))
