"""Optimisers by name, with weight decay where it belongs."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from partlabel.settings import Settings

Groups = list[dict[str, Any]]

_OPTIMIZERS: dict[str, Callable[[Groups, Settings], torch.optim.Optimizer]] = {
    "sgd": lambda groups, s: torch.optim.SGD(groups, lr=s.lr, momentum=s.momentum, fused=True),
    "adam": lambda groups, s: torch.optim.Adam(groups, lr=s.lr, fused=True),
    "adamw": lambda groups, s: torch.optim.AdamW(groups, lr=s.lr, fused=True),
    "rmsprop": lambda groups, s: torch.optim.RMSprop(groups, lr=s.lr),
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
