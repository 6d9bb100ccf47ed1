"""Losses that use the expected number of present labels per image."""

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import cross_entropy, mean, precise
from partlabel.learning.losses.known import bce


def expected_positive(logits: Tensor, labels: Tensor, *, expected: float) -> Tensor:
    """EPR: cross-entropy on known labels, and a penalty on the number of present labels.

    The penalty is ((N - K) / C)^2, where N is the sum of p over classes, averaged over images.

    Args:
        logits: [B, C]
        labels: [B, C]
        expected: K, expected number of present labels per image.
    """
    return bce(logits, labels) + _count_penalty(precise(logits), expected)


def role(logits: Tensor, labels: Tensor, *, estimates: Tensor, expected: float) -> Tensor:
    """ROLE: a classifier and an estimator of the labels are trained together.

    The cost of each of the two is :func:`expected_positive` plus the cross-entropy with the
    probabilities of the other one as targets. Targets get no gradient. The loss is the mean of both
    costs.

    Args:
        logits: [B, C] logits of the classifier.
        labels: [B, C]
        estimates: [B, C] logits of the estimator.
        expected: K, expected number of present labels per image.
    """
    logits, estimates = precise(logits), precise(estimates)
    costs = [
        expected_positive(own, labels, expected=expected)
        + mean(cross_entropy(own, torch.sigmoid(other.detach())))
        for own, other in ((logits, estimates), (estimates, logits))
    ]
    return (costs[0] + costs[1]) / 2


def _count_penalty(logits: Tensor, expected: float) -> Tensor:
    """The penalty of :func:`expected_positive` for logits [B, C]."""
    images, classes = logits.shape
    present = torch.sigmoid(logits).sum() / max(images, 1)
    return ((present - expected) / max(classes, 1)) ** 2
