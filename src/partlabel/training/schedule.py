"""Learning rates over time, as functions of time alone, so that a resumed run needs no state.

Each gives the factor on the learning rate at a moment from 0 (first step) to 1 (last step).
"""

import math
from collections.abc import Callable

Schedule = Callable[[float], float]


def constant(moment: float) -> float:
    """Always the same."""
    return 1.0


def step(moment: float) -> float:
    """A tenth in the second half."""
    return 1.0 if moment < 0.5 else 0.1


def cosine(moment: float) -> float:
    """Half a cosine, from 1 to 0."""
    return (1 + math.cos(math.pi * moment)) / 2


def onecycle(moment: float, rise: float = 0.3, start: float = 1 / 25, end: float = 1e-4) -> float:
    """Up from 1/25 in the first 30%, then down to 1/250000, both along a cosine (Smith 2018)."""
    if moment < rise:
        return 1 + (start - 1) * cosine(moment / rise)
    last = start * end
    return last + (1 - last) * cosine((moment - rise) / (1 - rise))


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "step": step,
    "cosine": cosine,
    "onecycle": onecycle,
    "plateau": constant,  # lowered by the trainer when validation stops getting better
}


def factor(name: str, moment: float, warmup: float = 0.0) -> float:
    """The factor at a moment, after a linear rise over the first ``warmup`` share of the time."""
    rise = min(1.0, moment / warmup) if warmup else 1.0
    return rise * SCHEDULES[name](moment)
