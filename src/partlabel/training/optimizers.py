"""Optimisers by name; weight decay does not apply to biases and norms by default."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn

from partlabel.base.choices import WHOLE_BATCH, Optimizer
from partlabel.training.settings import Settings

Groups = list[dict[str, Any]]
Closure = Callable[[], float]

_ITERATIONS = 20  # of L-BFGS per step; a step is an epoch
# L-BFGS stores its last changes, each in two vectors as long as all parameters. With more of them
# it converges faster. Their number is between these limits, and they fit into _MEMORY if possible.
_HISTORY_LIMITS = 10, 100
_MEMORY = 1 << 26  # bytes


class WholeBatch(torch.optim.LBFGS):
    """L-BFGS with a line search, on the cost of all images at once.

    Weight decay is part of the cost: weight_decay / 2 times the sum of squared weights. A convex
    cost then has a single minimum, and this optimiser reaches it. Optimisers that use small batches
    stop further from the minimum if many labels are unknown and features are correlated.

    A step keeps the curvature estimate of the steps before. The cost may change between two steps,
    so gradients before and after the beginning of a step are not compared.

    Args:
        groups: parameters and their weight decay.
        lr: length of the first step of a line search, relative to that of L-BFGS.
    """

    def __init__(self, groups: Groups, lr: float) -> None:
        parameters = [parameter for group in groups for parameter in group["params"]]
        decays = [group["weight_decay"] for group in groups for _ in group["params"]]
        self._decayed = [(p, decay) for p, decay in zip(parameters, decays, strict=True) if decay]
        super().__init__(
            [{"params": parameters, "base_lr": lr}],
            lr=lr,
            max_iter=_ITERATIONS,
            tolerance_grad=1e-9,  # the cost is a mean over many cells, so its gradient is small
            tolerance_change=1e-12,
            history_size=_history_size(sum(parameter.numel() for parameter in parameters)),
            line_search_fn="strong_wolfe",
        )

    def step(self, closure: Closure) -> float:  # type: ignore[override]
        """Run some iterations; ``closure`` returns the cost and sets the gradients."""
        is_first = True

        def with_decay() -> float:
            nonlocal is_first
            cost = closure() + self.penalty()
            with torch.no_grad():
                for parameter, decay in self._decayed:
                    if parameter.grad is not None:
                        parameter.grad.add_(parameter, alpha=decay)
            if is_first:
                self._forget_last_gradient()
                is_first = False
            return cost

        return super().step(with_decay)  # type: ignore[no-any-return,no-untyped-call]

    def penalty(self) -> float:
        """The part of the cost that is due to weight decay, at the current weights."""
        with torch.no_grad():
            return float(sum(decay / 2 * float(p.square().sum()) for p, decay in self._decayed))

    def _forget_last_gradient(self) -> None:
        """Replace the last gradient of the step before by the first one of this step."""
        state = self.state[self.param_groups[0]["params"][0]]
        if "prev_flat_grad" in state:
            state["prev_flat_grad"] = self._gather_flat_grad()  # type: ignore[no-untyped-call]


def _history_size(parameters: int) -> int:
    """How many changes L-BFGS stores, from the number of parameters.

    >>> _history_size(20 * 1281), _history_size(1000 * 1281), _history_size(10**9)
    (100, 10, 10)
    """
    least, most = _HISTORY_LIMITS
    return min(most, max(least, _MEMORY // (8 * max(parameters, 1))))


OPTIMIZERS: dict[Optimizer, Callable[[Groups, Settings], torch.optim.Optimizer]] = {
    "sgd": lambda groups, s: torch.optim.SGD(groups, lr=s.lr, momentum=s.momentum, fused=True),
    "adam": lambda groups, s: torch.optim.Adam(groups, lr=s.lr, fused=True),
    "adamw": lambda groups, s: torch.optim.AdamW(groups, lr=s.lr, fused=True),
    "rmsprop": lambda groups, s: torch.optim.RMSprop(groups, lr=s.lr),
    WHOLE_BATCH: lambda groups, s: WholeBatch(groups, groups[0]["lr"]),
}


def make_optimizer(
    parameters: Iterable[nn.Parameter],
    method_groups: Groups,
    lr: float,
    settings: Settings,
    name: Optimizer | None = None,
) -> torch.optim.Optimizer:
    """An optimiser of the model's parameters and the method's own groups.

    Biases and the weights of norms (vectors) have no weight decay, unless the settings have
    ``decay_all``. Each group stores its ``base_lr``, which the schedule multiplies by a factor.

    Args:
        parameters: the trained parameters of the model.
        method_groups: groups of the method's own parameters.
        lr: learning rate of the model's parameters.
        settings: weight decay, momentum, and the optimiser unless ``name`` is given.
        name: the optimiser; None for that of the settings.
    """
    decayed: list[nn.Parameter] = []
    not_decayed: list[nn.Parameter] = []
    for parameter in parameters:
        is_exempt = parameter.ndim <= 1 and not settings.decay_all and settings.weight_decay > 0
        (not_decayed if is_exempt else decayed).append(parameter)
    groups = [
        {"params": decayed, "lr": lr, "weight_decay": settings.weight_decay},
        {"params": not_decayed, "lr": lr, "weight_decay": 0.0},
        *method_groups,
    ]
    groups = [group | {"base_lr": group["lr"]} for group in groups if group["params"]]
    return OPTIMIZERS[name or settings.optimizer](groups, settings)


def restore(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a saved state, with the memory layout of the parameters.

    Fused kernels read a parameter and its moments in memory order. They do not check that both have
    the same layout, and tensors from a file are never channels-last.
    """
    optimizer.load_state_dict(state)
    for parameter, moments in optimizer.state.items():
        for name, value in moments.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                moments[name] = torch.empty_like(parameter).copy_(value)


def unhooked_step(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """The step of an optimiser, without hooks and records for profilers around it.

    Nobody uses them here, and they take a tenth of the time of a step that only trains a head.
    """
    hooked = type(optimizer).step
    return partial(getattr(hooked, "__wrapped__", hooked), optimizer)


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rate of each group to ``factor`` times its base."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
