"""Learning rate schedules, compared with those of torch."""

from typing import Any

import pytest
import torch

from partlabel.training.schedule import SCHEDULES, factor

STEPS = 50


def rates_of(make: Any, lr: float) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = make(optimizer)
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("rise", [0.2, 0.3])
def test_cosine_and_onecycle_as_in_torch(rise: float) -> None:
    positions = [step / (STEPS - 1) for step in range(STEPS)]
    cosine = rates_of(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, STEPS - 1), 1.0)
    assert [factor("cosine", position) for position in positions] == pytest.approx(cosine, abs=1e-9)
    # torch ends the rise at step pct_start * total - 1; here a share of the last step, as ours
    total = 51
    onecycle = []
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        1.0,
        total_steps=total,
        pct_start=(rise * (total - 1) + 1) / total,
        cycle_momentum=False,
    )
    for _ in range(total):
        onecycle.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(onecycle) < total:
            scheduler.step()
    factors = [factor("onecycle", step / (total - 1), rise=rise) for step in range(total)]
    assert factors == pytest.approx(onecycle, abs=1e-6)


def test_step_and_warmup() -> None:
    assert [factor("step", m) for m in (0, 0.49, 0.5, 1)] == [1, 1, 0.1, 0.1]
    assert [factor("constant", m, 0.5) for m in (0, 0.25, 0.5, 1)] == [0, 0.5, 1, 1]
    assert all(0 <= factor(name, m / 20) <= 1 for name in SCHEDULES for m in range(21))
