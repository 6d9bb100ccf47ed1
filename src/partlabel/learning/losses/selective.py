"""Losses that decide by the score of each cell how its unknown label is treated."""

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
    """Self-paced loss correction (SPLC): unknown labels count as present if likely, else as absent.

    The cost of a cell is a focal loss: (1 - p)^gamma (-log p) for a present label, and
    p^gamma (-log(1 - p)) for an absent one. For labels known to be present, p is the sigmoid of the
    logit minus a margin.

    Args:
        logits: [B, C]
        labels: [B, C]
        threshold: an unknown label counts as present if its p is larger.
        margin: subtracted from the logits of labels known to be present.
        gamma: focusing parameter, 0 for plain cross-entropy.
        correct: False to count all unknown labels as absent, as in the first epoch.

    >>> splc(torch.zeros(1, 2), torch.tensor([[0, -1]]), gamma=0)
    tensor(0.6931)
    """
    logits = precise(logits)
    shifted = torch.where(labels > 0, logits - margin, logits)
    present = labels > 0
    if correct:
        present = present | ((labels == 0) & (torch.sigmoid(logits) > threshold))
    of_present, of_absent = cost_of_present(shifted), cost_of_absent(shifted)
    # e^-of_absent is 1 - p, the error of a present label; e^-of_present is p
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
    """Class-aware selective loss (CSL): an unknown label counts as absent or is ignored.

    It is ignored if it is among the most likely unknown labels of the batch, or if its class is
    frequent. The cost of a cell is a focal loss: (1 - p)^gamma (-log p) for a present label, and
    p^gamma (-log(1 - p)) for any other. Present, absent and unknown labels each have their own
    gamma. The first factor is a weight and gets no gradient.

    Args:
        logits: [B, C]
        labels: [B, C]
        threshold: a class with a larger prior is frequent.
        ignored: the B * ``ignored`` most likely unknown labels of the batch are ignored.
        gamma_positive, gamma_negative, gamma_unknown: focusing parameters of labels known to be
            present, labels known to be absent, and unknown labels.
        prior: [C] share of images in which each class is present; None if no class is frequent.

    >>> selective(torch.zeros(1, 2), torch.tensor([[1, 0]]), ignored=0)
    tensor(0.4332)
    """
    logits = precise(logits)
    is_ignored = likeliest(logits, labels, ignored * len(labels))
    if prior is not None:
        is_ignored |= (labels == 0) & (prior > threshold)
    present, absent = cost_of_present(logits), cost_of_absent(logits)
    gamma = torch.where(labels == 0, gamma_unknown, gamma_negative)
    positive = torch.exp(-gamma_positive * absent.detach()) * present
    negative = torch.exp(-gamma * present.detach()) * absent
    cost = torch.where(labels > 0, positive, negative)
    return mean(torch.where(is_ignored, 0, cost))
