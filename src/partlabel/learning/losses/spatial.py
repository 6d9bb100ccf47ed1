"""Expected negatives, and class maps that agree with those of a slower model."""

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import likeliest, mean, precise
from partlabel.learning.losses.known import bce


def expected_negative(logits: Tensor, labels: Tensor, *, prior: Tensor, expected: float) -> Tensor:
    """EN: as assume-negative, but the unknown cells most likely present are left out.

    As many are left out as present labels are missing in the batch: B * K less the known ones.

    Args:
        logits: [B, C]
        labels: [B, C]
        prior: [B, C] how likely each cell is present, such as scores of a slower model.
        expected: K, present labels per image.
    """
    missing = round(len(labels) * expected - float((labels > 0).sum()))
    assumed = torch.where(labels == 0, -1, labels)
    return bce(logits, assumed.masked_fill(likeliest(prior, labels, missing), 0))


def spatial_consistency(
    logits: Tensor,
    labels: Tensor,
    weight: float = 1.0,
    *,
    maps: Tensor,
    teacher_maps: Tensor,
    expected: float = 1.5,
) -> Tensor:
    """EN + SCL: expected negatives, and the distance of class maps to a slower model's.

    Args:
        logits: [B, C]
        labels: [B, C]
        weight: of the distance, the mean of squared differences of probabilities.
        maps: [B, C, H, W] logits of each class at each place.
        teacher_maps: [B, C, H, W] those of the slower model for the same views; no gradient.
        expected: K, present labels per image (1.5: VOC).
    """
    theirs = precise(teacher_maps.detach())
    negatives = expected_negative(logits, labels, prior=theirs.mean(dim=(2, 3)), expected=expected)
    apart = (torch.sigmoid(precise(maps)) - torch.sigmoid(theirs)) ** 2
    return negatives + weight * mean(apart)
