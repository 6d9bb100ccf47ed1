"""Learning rate schedules.

A schedule is a function from the position in a stage, from 0 (first step) to 1 (last step), to the
factor on the learning rate. It has no state, so a resumed run needs none.
"""

import math
from collections.abc import Callable

from partlabel.base.choices import Schedule

Curve = Callable[[float], float]


def constant(position: float) -> float:
    """Always 1."""
    return 1.0


def step(position: float) -> float:
    """1 in the first half, 0.1 in the second."""
    return 1.0 if position < 0.5 else 0.1


def cosine(position: float) -> float:
    """Half a cosine, from 1 to 0."""
    return (1 + math.cos(math.pi * position)) / 2


def onecycle(position: float, rise: float = 0.3, start: float = 1 / 25, end: float = 1e-4) -> float:
    """Rises from 1/25 to 1, then falls to 1/250000, along cosines (Smith 2018)."""
    if position < rise:
        return 1 + (start - 1) * cosine(position / rise)
    last = start * end
    return last + (1 - last) * cosine((position - rise) / (1 - rise))


SCHEDULES: dict[Schedule, Curve] = {
    "constant": constant,
    "step": step,
    "cosine": cosine,
    "onecycle": onecycle,
    "plateau": constant,  # the trainer reduces the learning rate after an epoch that is no better
}


def factor(name: Schedule, position: float, warmup: float = 0.0, rise: float = 0.3) -> float:
    """The factor on the learning rate at a position.

    Args:
        name: the schedule.
        position: from 0 to 1.
        warmup: share of the steps over which the factor rises linearly from 0.
        rise: share of the steps over which ``onecycle`` rises.
    """
    share = min(1.0, position / warmup) if warmup else 1.0
    return share * (onecycle(position, rise) if name == "onecycle" else SCHEDULES[name](position))
