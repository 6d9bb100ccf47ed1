"""Losses on known labels only."""

from typing import Literal

import torch
from torch import Tensor

from partlabel.base.errors import InputError
from partlabel.learning.losses.cellwise import cost_of_present, mean, over_processes, precise

Normalize = Literal["classes", "batch", "image"]


def bce(logits: Tensor, labels: Tensor, normalize: Normalize = "classes") -> Tensor:
    """Binary cross-entropy on known labels.

    Args:
        logits: [B, C]
        labels: [B, C]
        normalize: what the sum over known labels is divided by. ``"classes"``: B * C.
            ``"batch"``: the number of known labels in the batch, over all processes of a
            distributed training. ``"image"``: the number of known labels of each image; then the
            mean over images is taken. If no label is known the loss is 0.

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
        return cost.sum() / over_processes(known.sum())
    return mean(cost.sum(dim=1) / known.sum(dim=1).clamp(min=1))


def batch_bce(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy on known labels, divided by their number in the batch.

    Args:
        logits: [B, C]
        labels: [B, C]
    """
    return bce(logits, labels, normalize="batch")


def squared(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean squared difference of logits and known labels, 1 or -1; 0 if no label is known.

    Args:
        logits: [B, C]
        labels: [B, C]

    >>> squared(torch.tensor([[0.5, 9.0]]), torch.tensor([[-1, 0]]))
    tensor(2.2500)
    """
    known = labels != 0
    cost = torch.where(known, (precise(logits) - labels).square(), 0)
    return cost.sum() / over_processes(known.sum())


def known_positives(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of -log p over the labels known to be present, to monitor how well they are learned.

    Args:
        logits: [B, C]
        labels: [B, C]
    """
    known = precise(logits)[labels > 0]
    return cost_of_present(known).sum() / max(len(known), 1)


def partial_bce(
    logits: Tensor,
    labels: Tensor,
    alpha: float = -4.45,
    beta: float = 5.45,
    gamma: float = 1.0,
) -> Tensor:
    """Binary cross-entropy on known labels, each image weighted by its share of known labels.

    The weight is g(q) = alpha q^gamma + beta, where q is the share of the image's labels that is
    known. An image without known labels costs 0. :func:`partial_weight` computes alpha and beta.

    Args:
        logits: [B, C]
        labels: [B, C]
        alpha, beta, gamma: parameters of g. Those of the paper give g(1) = 1 and g(0.1) = 5. With
            alpha 1, beta 0 and gamma -1, the sum over an image is divided by its number of known
            labels instead of C.

    >>> partial_bce(torch.zeros(1, 2), torch.tensor([[1, 0]]), alpha=1, beta=0, gamma=-1)
    tensor(0.6931)
    """
    logits, known = precise(logits), labels != 0
    share = known.to(logits.dtype).mean(dim=1) if labels.shape[1] else logits.new_zeros(len(labels))
    weight = alpha * torch.where(share > 0, share, 1) ** gamma + beta
    cost = torch.where(known, cost_of_present(labels * logits), 0)
    return mean(weight[:, None] * cost)


def partial_weight(value: float, share: float = 0.1, gamma: float = 1.0) -> tuple[float, float]:
    """Alpha and beta of :func:`partial_bce` such that g(1) = 1 and g(share) = value.

    >>> alpha, beta = partial_weight(5.0)
    >>> round(alpha, 2), round(beta, 2)
    (-4.44, 5.44)
    """
    if gamma == 0 or not 0 < share < 1:
        raise InputError(
            f"gamma = {gamma}, share = {share}: gamma must not be 0, and share must be "
            "between 0 and 1"
        )
    alpha = (value - 1) / (share**gamma - 1)
    return alpha, 1 - alpha
