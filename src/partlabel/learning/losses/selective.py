"""Losses that decide cell by cell, from the scores themselves, what an unknown label counts as."""

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import (
    cost_of_absent,
    cost_of_present,
    likeliest,
    mean,
    precise,
)


def splc(
    logits: Tensor,
    labels: Tensor,
    threshold: float = 0.6,
    margin: float = 1.0,
    gamma: float = 2.0,
    *,
    correct: bool = True,
) -> Tensor:
    """Self-paced loss correction (SPLC): unknown labels count as absent, likely ones as present.

    The cost of a cell is focal, (1 - p)^gamma (-log p) for a present one; labels known to be
    present are held to p of the logit minus a margin.

    Args:
        logits: [B, C]
        labels: [B, C]
        threshold: an unknown label with a larger p counts as present.
        margin: of known present labels, in logits.
        gamma: of the focus on what is hard, 0 for none.
        correct: False for unknown labels that all count as absent, as in the first epoch.

    >>> splc(torch.zeros(1, 2), torch.tensor([[0, -1]]), gamma=0)
    tensor(0.6931)
    """
    logits = precise(logits)
    shifted = torch.where(labels > 0, logits - margin, logits)
    present = labels > 0
    if correct:
        present = present | ((labels == 0) & (torch.sigmoid(logits) > threshold))
    of_present, of_absent = cost_of_present(shifted), cost_of_absent(shifted)
    # e^-cost is a probability: what is left of it is how wrong the other sign would be
    hard_present = torch.exp(-gamma * of_absent) * of_present
    hard_absent = torch.exp(-gamma * of_present) * of_absent
    return mean(torch.where(present, hard_present, hard_absent))


def selective(
    logits: Tensor,
    labels: Tensor,
    threshold: float = 0.05,
    ignored: int = 5,
    gamma_positive: float = 0.0,
    gamma_negative: float = 1.0,
    gamma_unknown: float = 2.0,
    *,
    prior: Tensor | None = None,
) -> Tensor:
    """Class-aware selective loss (CSL): an unknown label counts as absent, or not at all.

    It is left out if it is among the likeliest of the batch, or of a class that is frequent. Costs
    are focal, (1 - p)^gamma (-log p) for a present label, each kind of label with its own gamma;
    the first factor is a weight that passes on no gradient.

    Args:
        logits: [B, C]
        labels: [B, C]
        threshold: a class with a larger prior is frequent.
        ignored: so many unknown labels of the batch per image are left out.
        gamma_positive, gamma_negative, gamma_unknown: of known and unknown labels.
        prior: [C] which share of images has a class; None to leave no class out.

    >>> selective(torch.zeros(1, 2), torch.tensor([[1, 0]]), ignored=0)
    tensor(0.4332)
    """
    logits = precise(logits)
    out = likeliest(logits, labels, ignored * len(labels))
    if prior is not None:
        out |= (labels == 0) & (prior > threshold)
    present, absent = cost_of_present(logits), cost_of_absent(logits)
    gamma = torch.where(labels == 0, gamma_unknown, gamma_negative)
    positive = torch.exp(-gamma_positive * absent.detach()) * present
    negative = torch.exp(-gamma * present.detach()) * absent
    cost = torch.where(labels > 0, positive, negative)
    return mean(torch.where(out, 0, cost))
