"""Consistency between two views of an image: one gives pseudo-labels to the other."""

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import precise
from partlabel.learning.losses.known import bce


def confident(logits: Tensor, labels: Tensor, threshold: float = 0.6) -> Tensor:
    """Labels for the unknown cells with a confident prediction; 0 for all other cells.

    Args:
        logits: [B, C]; they get no gradient.
        labels: [B, C]
        threshold: a cell is labelled present if p, or absent if 1 - p, is at least this.

    Returns:
        [B, C] in {-1, 0, 1}

    >>> confident(torch.tensor([[2.0, -2.0, 0.1, 9.0]]), torch.tensor([[0, 0, 0, 1]]))
    tensor([[ 1, -1,  0,  0]])
    """
    scores = torch.sigmoid(precise(logits.detach()))
    signs = (scores >= threshold).to(labels.dtype) - (1 - scores >= threshold).to(labels.dtype)
    return torch.where(labels == 0, signs, 0)


def plc(logits: Tensor, labels: Tensor, delta: float = 0.6, *, teacher: Tensor) -> Tensor:
    """Pseudo-labelling consistency: one view learns the confident predictions of another view.

    The mean cross-entropy over the cells with a pseudo-label, 0 if there are none.

    Args:
        logits: [B, C] logits of the view that learns.
        labels: [B, C]; only unknown cells get a pseudo-label.
        delta: threshold of a confident prediction; see :func:`confident`.
        teacher: [B, C] logits of the other view; they get no gradient.

    >>> confident_of_the_first = torch.tensor([[3.0, 0.1]])
    >>> plc(torch.tensor([[0.0, 9.0]]), torch.zeros(1, 2), teacher=confident_of_the_first)
    tensor(0.6931)
    """
    return bce(logits, confident(teacher, labels, delta), "batch")
