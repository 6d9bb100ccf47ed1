"""Contrastive loss: pulls embeddings of the same class together and pushes others apart.

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
    """Label-aware consistency (LAC): a contrastive loss between embeddings of labels [1].

    Each current embedding is an anchor. Its partners are all other current embeddings and all past
    ones. Let s(p) be the product of the anchor with partner p, divided by the temperature.

        all:    - mean over anchors of the mean over partners p of the same class of
                  (s(p) - log sum of exp s over all partners)                                  [2]
        inter:  - 1 / total * sum over anchors of the sum over partners p of the same class of
                  (s(p) - log sum of exp s over partners of other classes)           (Eq. 7 of [1])

    An anchor costs 0 if it has no partner of its class. For ``inter`` it also costs 0 if it has no
    partner of another class. The largest tensor is [n, n + m].

    Args:
        embeddings: [n, d] unit vectors of all views.
        classes: [n] class of each embedding.
        past: [m, d] unit vectors of earlier steps; they get no gradient.
        past_classes: [m] class of each past embedding.
        temperature: tau.
        denominator: ``all`` or ``inter``, see above.
        total: number of embeddings from which the n were chosen, b * q for each view in the paper;
            n if not given.
    """
    if not len(embeddings):
        return embeddings.sum()
    partners = torch.cat([embeddings, past.detach()])
    partner_classes = torch.cat([classes, past_classes])
    number, pull = _pull(embeddings, classes, partners, partner_classes)
    similarity = embeddings @ partners.T
    similarity.div_(temperature)
    if denominator == "all":
        similarity.fill_diagonal_(-torch.inf)
    else:
        similarity.masked_fill_(classes[:, None] == partner_classes, -torch.inf)
    push = similarity.logsumexp(dim=1)
    valid = (number > 0) & push.isfinite()
    cost = torch.where(valid, number * push.nan_to_num(neginf=0.0) - pull / temperature, 0.0)
    if denominator == "all":
        return (cost / number.clamp(min=1)).mean()
    return cost.sum() / (total or len(embeddings))


def _pull(
    embeddings: Tensor, classes: Tensor, partners: Tensor, partner_classes: Tensor
) -> tuple[Tensor, Tensor]:
    """The number of partners of the same class [n], and the sum of the products with them [n].

    Computed from the sum of the embeddings of each class, so that no tensor [n, n] is needed.

    Args:
        embeddings: [n, d] the anchors.
        classes: [n]
        partners: [n + m, d] the anchors and the past embeddings.
        partner_classes: [n + m]
    """
    _, index = torch.unique(partner_classes, return_inverse=True)
    sums = partners.new_zeros(int(index.max()) + 1, partners.shape[1]).index_add(0, index, partners)
    own = index[: len(classes)]
    number = torch.bincount(index)[own] - 1
    return number, (embeddings * (sums[own] - embeddings)).sum(dim=1)
