"""Losses that treat unknown labels as absent, some with a lower weight or a soft target.

In all of them a label *known* to be absent has the negative term of the loss at full weight.
"""

from typing import Literal

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import (
    cost_of_absent,
    cost_of_present,
    cross_entropy,
    mean,
    precise,
)


def assume_negative(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy in which unknown labels count as absent.

    Args:
        logits: [B, C]
        labels: [B, C]

    >>> assume_negative(torch.zeros(1, 2), torch.tensor([[1, 0]]))
    tensor(0.6931)
    """
    return down_weighted(logits, labels, weight=1.0)


def down_weighted(logits: Tensor, labels: Tensor, weight: float = 0.1) -> Tensor:
    """As :func:`assume_negative`, with a weight on unknown labels.

    Args:
        logits: [B, C]
        labels: [B, C]
        weight: weight of unknown labels; 1 / (C - 1) is "weak assume negative".
    """
    logits = precise(logits)
    cost = torch.where(labels > 0, cost_of_present(logits), cost_of_absent(logits))
    return mean(torch.where(labels == 0, weight * cost, cost))


def label_smoothing(logits: Tensor, labels: Tensor, epsilon: float = 0.1) -> Tensor:
    """As :func:`assume_negative`, with targets 1 - epsilon and epsilon in place of 1 and 0.

    Args:
        logits: [B, C]
        labels: [B, C]
        epsilon: how far the targets are from 1 and 0.
    """
    logits = precise(logits)
    present = (labels > 0).to(logits.dtype)
    return mean(cross_entropy(logits, present * (1 - 2 * epsilon) + epsilon))


def negative_label_smoothing(logits: Tensor, labels: Tensor, epsilon: float = 0.3) -> Tensor:
    """As :func:`assume_negative`, with target epsilon for unknown labels only.

    Args:
        logits: [B, C]
        labels: [B, C]
        epsilon: target of unknown labels. EM + APL paper: 0.3 on VOC, 0.1 on COCO, NUS-WIDE and
            CUB.
    """
    logits = precise(logits)
    targets = (labels > 0).to(logits.dtype) + epsilon * (labels == 0)
    return mean(cross_entropy(logits, targets))


def focal(
    logits: Tensor,
    labels: Tensor,
    gamma: float = 2.0,
    alpha: float = 0.75,
    unknown: Literal["absent", "ignore"] = "absent",
) -> Tensor:
    """Focal loss: the cost of a cell is multiplied by its error to the power of gamma.

    The error is 1 - p for a present label and p for any other.

    Args:
        logits: [B, C]
        labels: [B, C]
        gamma: focusing parameter, 0 for plain cross-entropy.
        alpha: weight of present labels; all others have weight 1 - alpha.
        unknown: whether unknown labels count as absent, or not at all.
    """
    logits = precise(logits)
    present, absent = cost_of_present(logits), cost_of_absent(logits)
    # e^-absent is 1 - p, the error of a present label; e^-present is p
    hard_present = torch.exp(-gamma * absent) * present
    hard_absent = torch.exp(-gamma * present) * absent
    cost = torch.where(labels > 0, alpha * hard_present, (1 - alpha) * hard_absent)
    return mean(cost if unknown == "absent" else torch.where(labels == 0, 0.0, cost))


def asymmetric(
    logits: Tensor,
    labels: Tensor,
    gamma_positive: float = 0.0,
    gamma_negative: float = 2.0,
    margin: float = 0.2,
) -> Tensor:
    """Asymmetric loss (ASL): easy negatives have a low weight, those below a margin none.

    Unknown labels count as absent.

    Args:
        logits: [B, C]
        labels: [B, C]
        gamma_positive, gamma_negative: focusing parameters of present labels and of all others.
        margin: m; in the cost of a negative, p is replaced by max(p - m, 0).
    """
    logits = precise(logits)
    absent = cost_of_absent(logits)
    positive = torch.exp(-gamma_positive * absent) * cost_of_present(logits)
    if margin == 0:
        negative = torch.exp(-gamma_negative * cost_of_present(logits)) * absent
    else:
        shifted = torch.sigmoid(logits) - margin
        above = shifted > 0
        safe = torch.where(above, shifted, 0.5)  # a power of 0 or less may have no finite gradient
        # computed from 1 - p, which is accurate where p is close to 1
        cost = -torch.log((torch.sigmoid(-logits) + margin).clamp(max=1))
        negative = torch.where(above, safe**gamma_negative * cost, 0)
    return mean(torch.where(labels > 0, positive, negative))
