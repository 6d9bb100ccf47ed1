"""Expected negatives, and consistency of predictions or class maps with earlier ones."""

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import likeliest, mean, precise
from partlabel.learning.losses.known import bce


def expected_negative(logits: Tensor, labels: Tensor, *, prior: Tensor, expected: float) -> Tensor:
    """EN: unknown labels count as absent, but those most likely present are ignored.

    The number of ignored labels is the number of present labels that are expected to be unknown in
    the batch: B * K minus the number of labels known to be present.

    Args:
        logits: [B, C]
        labels: [B, C]
        prior: [B, C] how likely each cell is present, such as scores of a teacher.
        expected: K, expected number of present labels per image.
    """
    missing = round(len(labels) * expected - float((labels > 0).sum()))
    assumed = torch.where(labels == 0, -1, labels)
    return bce(logits, assumed.masked_fill(likeliest(prior, labels, missing), 0))


def prediction_consistency(
    logits: Tensor, labels: Tensor, weight: float = 1.0, *, average: Tensor, expected: float = 1.5
) -> Tensor:
    """EN + CL: expected negatives, and consistency of predictions with their running means.

    Consistency is the mean squared difference of the probabilities.

    Args:
        logits: [B, C]
        labels: [B, C]
        weight: weight of the consistency.
        average: [B, C] running means of the probabilities; they get no gradient.
        expected: K, expected number of present labels per image (VOC: 1.5).

    >>> means = torch.tensor([[0.5, 0.9]])
    >>> labels = torch.tensor([[-1, 0]])
    >>> prediction_consistency(torch.zeros(1, 2), labels, average=means, expected=1)
    tensor(0.4266)
    """
    average = precise(average.detach())
    negatives = expected_negative(logits, labels, prior=average, expected=expected)
    return negatives + weight * mean((torch.sigmoid(precise(logits)) - average) ** 2)


def spatial_consistency(
    logits: Tensor,
    labels: Tensor,
    weight: float = 1.0,
    *,
    maps: Tensor,
    teacher_maps: Tensor,
    expected: float = 1.5,
) -> Tensor:
    """EN + SCL: expected negatives, and consistency of class maps with those of a teacher.

    Consistency is the mean squared difference of the probabilities at all positions of the maps.

    Args:
        logits: [B, C]
        labels: [B, C]
        weight: weight of the consistency.
        maps: [B, C, H, W] logits of each class at each position.
        teacher_maps: [B, C, H, W] those of the teacher for the same views; they get no gradient.
        expected: K, expected number of present labels per image (VOC: 1.5).
    """
    teacher = precise(teacher_maps.detach())
    negatives = expected_negative(logits, labels, prior=teacher.mean(dim=(2, 3)), expected=expected)
    difference = (torch.sigmoid(precise(maps)) - torch.sigmoid(teacher)) ** 2
    return negatives + weight * mean(difference)
