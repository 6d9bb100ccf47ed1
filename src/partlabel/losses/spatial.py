"""Expected negatives, and class maps that agree with those of a slower model."""

import torch
from torch import Tensor

from partlabel.losses.cells import mean, precise
from partlabel.losses.known import bce


def expected_negative(logits: Tensor, labels: Tensor, *, prior: Tensor, expected: float) -> Tensor:
    """EN: as assume-negative, but the unknown cells most likely present are left out.

    As many are left out as present labels are missing in the batch: B * K less the known ones.

    Args:
        logits: [B, C]
        labels: [B, C]
        prior: [B, C] how likely each cell is present, such as scores of a slower model.
        expected: K, present labels per image.
    """
    unknown = labels == 0
    missing = round(len(labels) * expected - float((labels > 0).sum()))
    missing = min(max(missing, 0), int(unknown.sum()))
    assumed = torch.where(unknown, -1, labels)
    likely = torch.where(unknown, prior.to(torch.float32), -torch.inf).flatten()
    left_out = torch.zeros_like(likely, dtype=torch.bool)
    left_out[likely.topk(missing).indices] = True
    return bce(logits, assumed.masked_fill(left_out.view(labels.shape), 0))


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
