"""Labels known to be present should score higher than those known to be absent, image by image.

[1] Li et al., Improving Pairwise Ranking for Multi-label Image Classification, CVPR 2017.
[2] Zhang et al., Fast Zero-Shot Image Tagging, CVPR 2016.
[3] Weston et al., WSABIE: Scaling Up To Large Vocabulary Image Annotation, IJCAI 2011.

Costs of images are averaged over the batch; an image without labels of both signs costs nothing.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from partlabel.learning.losses.cellwise import precise


def lsep(logits: Tensor, labels: Tensor) -> Tensor:
    """log(1 + sum over absent a and present b of exp(x_a - x_b)) [1].

    The double sum is a product of two sums: the cost is linear in the number of classes.

    >>> lsep(torch.tensor([[1.0, 1.0, 9.0]]), torch.tensor([[1, -1, 0]]))
    tensor(0.6931)
    """
    both = (labels > 0).any(dim=1) & (labels < 0).any(dim=1)
    x, known = precise(logits)[both], labels[both]
    absent = torch.where(known < 0, x, -torch.inf).logsumexp(dim=1)
    present = torch.where(known > 0, -x, -torch.inf).logsumexp(dim=1)
    return softplus(absent + present).sum() / max(len(labels), 1)


def ranknet(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over pairs of log(1 + exp(x_a - x_b)), each image weighing the same [2].

    >>> ranknet(torch.tensor([[1.0, 1.0, 9.0]]), torch.tensor([[1, -1, 0]]))
    tensor(0.6931)
    """
    gaps, pairs = _pairs(logits, labels)
    cost = torch.where(pairs, softplus(gaps), 0).sum(dim=(1, 2))
    return (cost / pairs.sum(dim=(1, 2)).clamp(min=1)).sum() / max(len(labels), 1)


def warp(logits: Tensor, labels: Tensor, margin: float = 1.0) -> Tensor:
    """Weighted approximate rank pairwise loss, without sampling [3].

    A present label costs the mean of max(0, margin + x_a - x_b) over the absent ones a that are
    within the margin, times 1 + 1/2 + ... + 1/rank where rank is their number: what sampling
    approximates.

    >>> warp(torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[1, -1, -1]]))
    tensor(1.5000)
    """
    gaps, pairs = _pairs(logits, labels)
    hinge = torch.where(pairs, (margin + gaps).clamp(min=0), 0)
    rank = (hinge > 0).sum(dim=1)  # [B, present]
    harmonic = torch.cumsum(1 / torch.arange(1, gaps.shape[1] + 1, device=gaps.device), dim=0)
    weight = pad(harmonic, (1, 0))[rank] / rank.clamp(min=1)
    return (weight * hinge.sum(dim=1)).sum() / max(len(labels), 1)


def _pairs(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """[B, absent, present] x_a - x_b, and where there is such a pair.

    As many of each as the image has that has most: memory grows with what is known, not with C^2.
    """
    sides = []
    for sign in (-1, 1):
        chosen = labels.sign() == sign
        most = int(chosen.sum(dim=1).max()) if chosen.numel() else 0
        there, at = chosen.int().topk(most, dim=1)
        sides.append((precise(logits).gather(1, at), there > 0))
    (absent, is_absent), (present, is_present) = sides
    pairs = is_absent[:, :, None] & is_present[:, None, :]
    return absent[:, :, None] - present[:, None, :], pairs
