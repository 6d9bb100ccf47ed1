"""Losses that know how many labels of an image are present on average."""

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import cross_entropy, mean, precise
from partlabel.learning.losses.known import bce


def expected_positive(logits: Tensor, labels: Tensor, *, expected: float) -> Tensor:
    """EPR: cross-entropy on known labels, and a pull to the expected number of present labels.

    Args:
        logits: [B, C]
        labels: [B, C]
        expected: K, present labels per image; the pull is ((mean of sum of p - K) / C)^2.
    """
    return bce(logits, labels) + _count_penalty(precise(logits), expected)


def role(logits: Tensor, labels: Tensor, *, estimates: Tensor, expected: float) -> Tensor:
    """ROLE: a classifier and an estimator of labels, each learning from known labels, from the
    other as it is now, and from the expected number of present labels; the mean of both costs.

    Args:
        logits: [B, C] of the classifier.
        labels: [B, C]
        estimates: [B, C] logits of the estimator.
        expected: K, present labels per image.
    """  # fmt: skip
    logits, estimates = precise(logits), precise(estimates)
    halves = [
        expected_positive(mine, labels, expected=expected)
        + mean(cross_entropy(mine, torch.sigmoid(other.detach())))
        for mine, other in ((logits, estimates), (estimates, logits))
    ]
    return (halves[0] + halves[1]) / 2


def _count_penalty(logits: Tensor, expected: float) -> Tensor:
    images, classes = logits.shape
    present = torch.sigmoid(logits).sum() / max(images, 1)
    return ((present - expected) / max(classes, 1)) ** 2
