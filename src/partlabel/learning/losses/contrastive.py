"""Embeddings of the same class belong together, those of different classes apart.

[1] Xie et al., Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels,
    NeurIPS 2022.
[2] Khosla et al., Supervised Contrastive Learning, NeurIPS 2020.
"""

from typing import Literal

import torch
from torch import Tensor

Denominator = Literal["all", "inter"]


def lac(
    embeddings: Tensor,
    classes: Tensor,
    past: Tensor,
    past_classes: Tensor,
    temperature: float = 0.5,
    denominator: Denominator = "all",
    total: int | None = None,
) -> Tensor:
    """Label-aware consistency: each embedding is pulled to its class, pushed from others [1].

    An anchor is any current embedding; its partners are all other current embeddings and the past
    ones. With ``s`` for similarity over temperature,

        all:    - mean over anchors of the mean over partners p of the same class of
                  (s(p) - log sum of exp s over all partners)                                  [2]
        inter:  - 1 / total * sum over anchors of the sum over the same partners of
                  (s(p) - log sum of exp s over partners of other classes)           (Eq. 7 of [1])

    An anchor without a partner of its class adds 0, and for ``inter`` one without a partner of
    another class. The largest tensor is [n, n + m].

    Args:
        embeddings: [n, d] unit vectors, of all views.
        classes: [n]
        past: [m, d] of earlier steps, which get no gradient.
        past_classes: [m]
        temperature: tau.
        denominator: see above.
        total: b * q for each view, embeddings that could have been chosen; n if not given.
    """
    if not len(embeddings):
        return embeddings.sum()
    partners = torch.cat([embeddings, past.detach()])
    partner_classes = torch.cat([classes, past_classes])
    number, pull = _pull(embeddings, classes, partners, partner_classes)
    similar = embeddings @ partners.T
    similar.div_(temperature)
    if denominator == "all":
        similar.fill_diagonal_(-torch.inf)
    else:
        similar.masked_fill_(classes[:, None] == partner_classes, -torch.inf)
    push = similar.logsumexp(dim=1)
    counts = (number > 0) & push.isfinite()
    cost = torch.where(counts, number * push.nan_to_num(neginf=0.0) - pull / temperature, 0.0)
    if denominator == "all":
        return (cost / number.clamp(min=1)).mean()
    return cost.sum() / (total or len(embeddings))


def _pull(
    embeddings: Tensor, classes: Tensor, partners: Tensor, partner_classes: Tensor
) -> tuple[Tensor, Tensor]:
    """[n] how many partners of its class an anchor has, and [n] the sum of its products with them.

    Through the sum of each class, so that no [n, n] tensor is needed.
    """
    _, at = torch.unique(partner_classes, return_inverse=True)
    sums = partners.new_zeros(int(at.max()) + 1, partners.shape[1]).index_add(0, at, partners)
    own = at[: len(classes)]
    number = torch.bincount(at)[own] - 1
    return number, (embeddings * (sums[own] - embeddings)).sum(dim=1)
