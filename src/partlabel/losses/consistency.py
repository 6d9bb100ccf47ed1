"""One view of a picture teaches another what is not labelled."""

import torch
from torch import Tensor

from partlabel.losses.cells import precise
from partlabel.losses.known import Normalize, bce


def confident(logits: Tensor, labels: Tensor, threshold: float = 0.6) -> Tensor:
    """Labels for unknown cells of which a model is sure, either way; 0 for all others.

    Args:
        logits: [B, C], which get no gradient.
        labels: [B, C]
        threshold: of the probability of the likelier side.

    Returns:
        [B, C] in {-1, 0, 1}

    >>> confident(torch.tensor([[2.0, -2.0, 0.1, 9.0]]), torch.tensor([[0, 0, 0, 1]]))
    tensor([[ 1, -1,  0,  0]])
    """
    scores = torch.sigmoid(precise(logits.detach()))
    signs = (scores >= threshold).to(labels.dtype) - (1 - scores >= threshold).to(labels.dtype)
    return torch.where(labels == 0, signs, 0)


def consistency(
    logits: Tensor,
    labels: Tensor,
    threshold: float = 0.6,
    normalize: Normalize = "batch",
    *,
    teacher: Tensor,
) -> Tensor:
    """Cross-entropy of one view on what another view of the same pictures is sure of.

    Args:
        logits: [B, C] of the view that learns.
        labels: [B, C] of which only unknown ones count.
        threshold: see :func:`confident`.
        normalize: see :func:`bce`.
        teacher: [B, C] logits of the other view, without gradient.
    """
    return bce(logits, confident(teacher, labels, threshold), normalize)
