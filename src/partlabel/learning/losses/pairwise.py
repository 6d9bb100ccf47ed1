"""Ranking losses: in an image, present labels should score higher than absent ones.

[1] Li et al., Improving Pairwise Ranking for Multi-label Image Classification, CVPR 2017.
[2] Zhang et al., Fast Zero-Shot Image Tagging, CVPR 2016.
[3] Weston et al., WSABIE: Scaling Up To Large Vocabulary Image Annotation, IJCAI 2011.

Only known labels are used. Let x_a be the logit of an absent label and x_b that of a present one.
The cost of an image is averaged over the batch. It is 0 without both present and absent labels.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from partlabel.learning.losses.cellwise import precise


def lsep(logits: Tensor, labels: Tensor) -> Tensor:
    """log(1 + sum over absent a and present b of exp(x_a - x_b)) [1].

    The double sum is a product of two sums, so the run time is linear in the number of classes.

    Args:
        logits: [B, C]
        labels: [B, C]

    >>> lsep(torch.tensor([[1.0, 1.0, 9.0]]), torch.tensor([[1, -1, 0]]))
    tensor(0.6931)
    """
    both = (labels > 0).any(dim=1) & (labels < 0).any(dim=1)
    x, known = precise(logits)[both], labels[both]
    absent = torch.where(known < 0, x, -torch.inf).logsumexp(dim=1)
    present = torch.where(known > 0, -x, -torch.inf).logsumexp(dim=1)
    return softplus(absent + present).sum() / max(len(labels), 1)


def ranknet(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the pairs of an image of log(1 + exp(x_a - x_b)) [2].

    Args:
        logits: [B, C]
        labels: [B, C]

    >>> ranknet(torch.tensor([[1.0, 1.0, 9.0]]), torch.tensor([[1, -1, 0]]))
    tensor(0.6931)
    """
    gaps, pairs = _pairs(logits, labels)
    cost = torch.where(pairs, softplus(gaps), 0).sum(dim=(1, 2))
    return (cost / pairs.sum(dim=(1, 2)).clamp(min=1)).sum() / max(len(labels), 1)


def warp(logits: Tensor, labels: Tensor, margin: float = 1.0) -> Tensor:
    """Weighted approximate rank pairwise loss (WARP), without sampling [3].

    The rank of a present label b is the number of absent labels a with margin + x_a - x_b > 0. Its
    cost is the mean of margin + x_a - x_b over these, times 1 + 1/2 + ... + 1/rank. The paper
    estimates the rank by sampling.

    Args:
        logits: [B, C]
        labels: [B, C]
        margin: least difference of logits without a cost.

    >>> warp(torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[1, -1, -1]]))
    tensor(1.5000)
    """
    gaps, pairs = _pairs(logits, labels)
    hinge = torch.where(pairs, (margin + gaps).clamp(min=0), 0)
    rank = (hinge > 0).sum(dim=1)  # [B, P]
    harmonic = torch.cumsum(1 / torch.arange(1, gaps.shape[1] + 1, device=gaps.device), dim=0)
    weight = pad(harmonic, (1, 0))[rank] / rank.clamp(min=1)
    return (weight * hinge.sum(dim=1)).sum() / max(len(labels), 1)


def _pairs(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """x_a - x_b [B, A, P] for all pairs of an image, and which entries are pairs [B, A, P].

    A and P are the largest numbers of absent and present labels of an image. So memory depends on
    the number of known labels, not on C^2.

    Args:
        logits: [B, C]
        labels: [B, C]
    """
    sides = []
    for sign in (-1, 1):
        chosen = labels.sign() == sign
        most = int(chosen.sum(dim=1).max()) if chosen.numel() else 0
        is_chosen, columns = chosen.int().topk(most, dim=1)
        sides.append((precise(logits).gather(1, columns), is_chosen > 0))
    (absent, is_absent), (present, is_present) = sides
    pairs = is_absent[:, :, None] & is_present[:, None, :]
    return absent[:, :, None] - present[:, None, :], pairs
