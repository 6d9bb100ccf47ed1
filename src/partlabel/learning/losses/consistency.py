"""One view of a picture teaches another what is not labelled."""

import torch
from torch import Tensor

from partlabel.learning.losses.cellwise import precise
from partlabel.learning.losses.known import bce


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


def plc(logits: Tensor, labels: Tensor, delta: float = 0.6, *, teacher: Tensor) -> Tensor:
    """Pseudo-labelling consistency: one view learns what another of the same pictures is sure of.

    The mean of the cross-entropy over the cells that are learned, 0 if there are none.

    Args:
        logits: [B, C] of the view that learns.
        labels: [B, C] of which only unknown ones count.
        delta: how sure, either way; see :func:`confident`.
        teacher: [B, C] logits of the other view, which get no gradient.

    >>> sure_of_the_first = torch.tensor([[3.0, 0.1]])
    >>> plc(torch.tensor([[0.0, 9.0]]), torch.zeros(1, 2), teacher=sure_of_the_first)
    tensor(0.6931)
    """
    return bce(logits, confident(teacher, labels, delta), "batch")
