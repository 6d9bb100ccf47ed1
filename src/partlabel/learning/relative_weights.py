"""Weights of costs relative to a main cost: how large each is, measured on a few batches."""

from collections.abc import Sequence

import torch
from torch import Tensor

from partlabel.base import processes
from partlabel.base.numerics import widest


def size_ratios(sizes: Tensor, otherwise: Tensor | None = None) -> Tensor:
    """The mean size of the main cost divided by that of each other cost.

    Args:
        sizes: [n, m + 1] sizes on n batches: of the main cost, then of m others.
        otherwise: [m] ratios to use where one of the two means is 0; 1 if not given.

    Returns:
        [m]

    >>> size_ratios(torch.tensor([[1.0, 4.0, 0.0], [3.0, 4.0, 0.0]]))
    tensor([0.5000, 1.0000])
    """
    means = sizes.mean(dim=0)
    main, others = means[:1], means[1:]
    fallback = torch.ones_like(others) if otherwise is None else otherwise.to(others)
    return torch.where((main > 0) & (others > 0), main / others, fallback)


def gradient_norms(costs: Sequence[Tensor], parameters: Sequence[Tensor]) -> Tensor:
    """The norm of the gradient of each cost, over all parameters together.

    Args:
        costs: m scalars of one graph.
        parameters: what the gradient is taken of; a cost may depend on none of them.

    Returns:
        [m]
    """
    norms = []
    for cost in costs:
        gradients: Sequence[Tensor | None] = ()
        if cost.requires_grad:
            gradients = torch.autograd.grad(cost, parameters, retain_graph=True, allow_unused=True)
        own = [slope.clone() for slope in gradients if slope is not None]
        processes.average(own)
        squares = [widest(slope).square().sum() for slope in own]
        norms.append(sum(squares, start=widest(cost.detach()).new_zeros(())).sqrt())
    return torch.stack(norms)
