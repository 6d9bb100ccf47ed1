"""Optimisers by name, with weight decay where it belongs."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from partlabel.training.settings import Settings

Groups = list[dict[str, Any]]
Closure = Callable[[], float]

_ITERATIONS = 20  # of L-BFGS in a step, which is an epoch
_PAST = 10, 100  # changes that it remembers, each as long as all parameters, twice; the more the
_MEMORY = 1 << 26  # sooner it is there, but of large heads as many as go into so many bytes


class WholeBatch(torch.optim.LBFGS):
    """L-BFGS with a line search, for the cost of all images at once.

    Weight decay is part of the cost here, half its product with the squared weights, so that a
    convex cost has one minimum and this finds it. Where many labels are unknown and features are
    correlated, optimisers that take one small batch after another end some way from it.

    A step goes on from what the last one found. The cost may have changed in between, and gradients
    of different costs say nothing about either, so none is compared over the beginning of a step.
    """

    def __init__(self, groups: Groups, lr: float) -> None:
        parameters = [parameter for group in groups for parameter in group["params"]]
        decays = [group["weight_decay"] for group in groups for _ in group["params"]]
        self._decayed = [(p, decay) for p, decay in zip(parameters, decays, strict=True) if decay]
        super().__init__(
            [{"params": parameters, "base_lr": lr}],
            lr=lr,
            max_iter=_ITERATIONS,
            tolerance_grad=1e-9,  # costs are means over many cells, and change little
            tolerance_change=1e-12,
            history_size=_history(sum(parameter.numel() for parameter in parameters)),
            line_search_fn="strong_wolfe",
        )

    def step(self, closure: Closure) -> float:  # type: ignore[override]
        """Go on for some iterations; ``closure`` gives the cost and leaves its gradients."""
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
        """The weight decay's part of the cost, at the current weights."""
        with torch.no_grad():
            return float(sum(decay / 2 * float(p.square().sum()) for p, decay in self._decayed))

    def _forget_last_gradient(self) -> None:
        memory = self.state[self.param_groups[0]["params"][0]]
        if "prev_flat_grad" in memory:
            memory["prev_flat_grad"] = self._gather_flat_grad()  # type: ignore[no-untyped-call]


def _history(size: int) -> int:
    """How many changes to remember of so many parameters.

    >>> _history(20 * 1281), _history(1000 * 1281), _history(10**9)
    (100, 10, 10)
    """
    least, most = _PAST
    return min(most, max(least, _MEMORY // (8 * max(size, 1))))


_OPTIMIZERS: dict[str, Callable[[Groups, Settings], torch.optim.Optimizer]] = {
    "sgd": lambda groups, s: torch.optim.SGD(groups, lr=s.lr, momentum=s.momentum, fused=True),
    "adam": lambda groups, s: torch.optim.Adam(groups, lr=s.lr, fused=True),
    "adamw": lambda groups, s: torch.optim.AdamW(groups, lr=s.lr, fused=True),
    "rmsprop": lambda groups, s: torch.optim.RMSprop(groups, lr=s.lr),
    "lbfgs": lambda groups, s: WholeBatch(groups, groups[0]["lr"]),
}


def make_optimizer(
    parameters: Iterable[nn.Parameter],
    method_groups: Groups,
    lr: float,
    settings: Settings,
    name: str | None = None,
) -> torch.optim.Optimizer:
    """An optimiser over the model's parameters and the method's own groups.

    Biases and the weights of norms (vectors) are not decayed unless the settings ask for it. Each
    group remembers its ``base_lr``, which the schedule multiplies.
    """
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for parameter in parameters:
        is_vector = parameter.ndim <= 1 and not settings.decay_all and settings.weight_decay > 0
        (plain if is_vector else decayed).append(parameter)
    groups = [
        {"params": decayed, "lr": lr, "weight_decay": settings.weight_decay},
        {"params": plain, "lr": lr, "weight_decay": 0.0},
        *method_groups,
    ]
    groups = [group | {"base_lr": group["lr"]} for group in groups if group["params"]]
    return _OPTIMIZERS[name or settings.optimizer](groups, settings)


def restore(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a saved state, laid out in memory as the parameters are.

    A fused kernel walks over a parameter and its moments side by side, and does not ask whether one
    is channels-last and the other, fresh from a file, is not.
    """
    optimizer.load_state_dict(state)
    for parameter, moments in optimizer.state.items():
        for name, value in moments.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                moments[name] = torch.empty_like(parameter).copy_(value)


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set every group's learning rate to a factor of its base."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
