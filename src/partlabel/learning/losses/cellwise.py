"""Cell by cell: what all losses are put together from, exact and finite for any logit."""

import torch
from torch import Tensor, distributed
from torch.nn.functional import logsigmoid


def precise(logits: Tensor) -> Tensor:
    """Logits in single precision at least: half precision is not for sums of costs."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def cost_of_present(logits: Tensor) -> Tensor:
    """-log p."""
    return -logsigmoid(logits)


def cost_of_absent(logits: Tensor) -> Tensor:
    """-log(1 - p)."""
    return -logsigmoid(-logits)


def cross_entropy(logits: Tensor, targets: Tensor | float) -> Tensor:
    """Binary cross-entropy with targets from 0 to 1."""
    return targets * cost_of_present(logits) + (1 - targets) * cost_of_absent(logits)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of a Bernoulli variable, in nats.

    Even in the logit, so taken at its absolute value a: log(1 + e^-a) + a / (1 + e^a). Both terms
    are small where the entropy is, so neither it nor its gradient -x p (1 - p) loses digits there.
    """
    size = logits.abs()
    return cost_of_present(size) + size * torch.sigmoid(-size)


def mean(cost: Tensor) -> Tensor:
    """The mean over all cells, 0 if there are none."""
    return cost.sum() / max(cost.numel(), 1)


def over_processes(count: Tensor) -> Tensor:
    """The mean of a count over all processes that train together, at least 1 in total.

    Gradients are averaged over processes: a sum divided by this becomes the sum over all processes
    divided by the count over all processes. Alone it is the count itself.
    """
    count, processes = count.detach().clone(), 1
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(count)
        processes = distributed.get_world_size()
    return count.clamp(min=1) / processes


def likeliest(scores: Tensor, labels: Tensor, number: int) -> Tensor:
    """[B, C] whether a cell is among so many unknown ones of the batch with the largest scores."""
    unknown = labels == 0
    scores = torch.where(unknown, precise(scores.detach()), -torch.inf).flatten()
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    chosen[scores.topk(min(max(number, 0), int(unknown.sum()))).indices] = True
    return chosen.view(labels.shape)
