"""Costs of single cells, from which all losses are built; accurate and finite for any logit."""

import torch
from torch import Tensor, distributed
from torch.nn.functional import logsigmoid

from partlabel.base import processes


def precise(logits: Tensor) -> Tensor:
    """Logits in single precision or better: half precision is too coarse to sum up costs."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def cost_of_present(logits: Tensor) -> Tensor:
    """-log p of each cell, the cost of a present label; any shape."""
    return -logsigmoid(logits)


def cost_of_absent(logits: Tensor) -> Tensor:
    """-log(1 - p) of each cell, the cost of an absent label; any shape."""
    return -logsigmoid(-logits)


def cross_entropy(logits: Tensor, targets: Tensor | float) -> Tensor:
    """Binary cross-entropy of each cell, with targets from 0 to 1; any shape."""
    return targets * cost_of_present(logits) + (1 - targets) * cost_of_absent(logits)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of each cell in nats; any shape.

    The entropy is an even function of the logit x, so it is computed from a = |x| as
    log(1 + e^-a) + a / (1 + e^a). Both terms are small where the entropy is small. So neither the
    entropy nor its gradient -x p (1 - p) loses accuracy there.
    """
    magnitude = logits.abs()
    return cost_of_present(magnitude) + magnitude * torch.sigmoid(-magnitude)


def mean(cost: Tensor) -> Tensor:
    """The mean over all cells, 0 if there are none."""
    return cost.sum() / max(cost.numel(), 1)


def over_processes(count: Tensor) -> Tensor:
    """The mean of a count over all processes of a distributed training; the total is at least 1.

    Gradients are averaged over processes. So a sum that each process divides by this value becomes
    the sum over all processes divided by the count over all processes. With one process, and if
    each process has the whole batch, the result is the count itself.

    Args:
        count: a scalar.
    """
    count, shares = count.detach().clone(), 1
    is_distributed = distributed.is_available() and distributed.is_initialized()
    if is_distributed and not processes.has_whole_batches():
        distributed.all_reduce(count)
        shares = distributed.get_world_size()
    return count.clamp(min=1) / shares


def likeliest(scores: Tensor, labels: Tensor, number: int) -> Tensor:
    """Whether each cell [B, C] is among the unknown cells of the batch with the highest scores.

    Args:
        scores: [B, C]
        labels: [B, C]
        number: how many cells to choose in the whole batch.
    """
    unknown = labels == 0
    scores = torch.where(unknown, precise(scores.detach()), -torch.inf).flatten()
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    chosen[scores.topk(min(max(number, 0), int(unknown.sum()))).indices] = True
    return chosen.view(labels.shape)
