"""Check the guarantees of `review`: simulated reviewers watch the bounds, and stop when they like.

    python -m benchmarks.reviewers

Each reviewer answers the random labels of one class truthfully, in the order in which the page
draws them, and looks at the guarantees after every answer. A guarantee is broken if it was shown at
any moment for labels of which fewer are right than stated. In most of the worlds some step of the
test is just below the precision to show, so that whoever stops at the best moment has the best
chance to be wrong. For comparison, the same reviewers look at the usual bound for a sample of fixed
size (Clopper-Pearson) after every answer.
"""

import argparse
import math
from typing import NamedTuple

import numpy as np
from scipy.stats import beta

from benchmarks.report import machine
from partlabel.metrics.anytime import ERROR, Sampled, least_precision
from partlabel.output.review.audit import SMALL


class World(NamedTuple):
    """Labels of each stratum of present labels, and the share of these that is right."""

    name: str
    sizes: tuple[int, int, int, int]
    right: tuple[float, float, float, float]


WORLDS = (
    World("all steps just below", (400, 300, 300, 500), (0.945, 0.945, 0.945, 0.945)),
    World("first step right, second wrong", (300, 600, 0, 0), (0.99, 0.925, 0, 0)),
    World("large and just below", (20_000, 20_000, 20_000, 0), (0.945, 0.945, 0.945, 0)),
    World("small and just below", (110, 0, 0, 0), (0.9455, 0, 0, 0)),
    World("far below", (500, 500, 0, 0), (0.9, 0.85, 0, 0)),
    World("all steps right", (400, 300, 300, 500), (0.99, 0.99, 0.98, 0.97)),
)


class Outcome(NamedTuple):
    """Shares of reviewers: ever broken, also with the usual bound; and labels guaranteed."""

    broken: float
    usual: float
    guaranteed: float


def simulate(world: World, reviewers: int, precision: float, most: int, seed: int) -> Outcome:
    """All reviewers of a world at once; the rule of draws is that of the page."""
    rng = np.random.default_rng(seed)
    sizes = np.array(world.sizes)
    wrong = np.round((1 - np.array(world.right)) * sizes).astype(np.int64)
    # which labels of a stratum are wrong, in the order in which each reviewer draws them
    hidden = [
        np.stack([rng.permutation(size)[:most] < bad for _ in range(reviewers)])
        for size, bad in zip(sizes, wrong, strict=True)
    ]
    steps = [k for k in range(len(sizes)) if sizes[k] and sizes[: k + 1].sum() >= SMALL]
    true = [1 - wrong[: k + 1].sum() / sizes[: k + 1].sum() for k in steps]
    drawn, errors = np.zeros((2, reviewers, len(sizes)))
    passed = np.zeros(reviewers, dtype=np.int64)
    broken, usual = np.zeros((2, reviewers), dtype=np.bool_)
    for answer in range(1, most + 1):
        last = np.array(steps)[np.minimum(passed, len(steps) - 1)]
        inside = (np.arange(len(sizes)) <= last[:, None]) & (drawn < sizes)
        stratum = np.where(inside, sizes / (drawn + 0.5), -1.0).argmax(axis=1)
        active = np.flatnonzero(inside.any(axis=1))
        k, n = stratum[active], drawn[active, stratum[active]].astype(np.int64)
        errors[active, k] += [hidden[a][r, b] for r, a, b in zip(active, k, n, strict=True)]
        drawn[active, k] += 1
        if answer < math.log(ERROR) / math.log(precision):
            continue  # too few to show anything
        part = np.arange(len(sizes)) <= last[:, None]
        now = Sampled(
            *(np.where(part, array, 0.0) for array in (sizes + 0.0 * drawn, drawn, errors))
        )
        good = (least_precision(now, precision) >= precision) & (passed < len(steps))
        broken |= good & (np.array(true)[np.minimum(passed, len(steps) - 1)] < precision)
        passed += good
        right = (drawn - errors)[:, 0]
        bound = beta.ppf(0.05, np.maximum(right, 1), errors[:, 0] + 1)
        usual |= (bound >= precision) & (true[0] < precision) & (steps[0] == 0)
    reached = np.array([0, *np.cumsum(sizes)[steps]])[passed]
    return Outcome(broken.mean(), usual.mean(), reached.mean() / sizes.sum())


def run(reviewers: int = 400, precision: float = 0.95, most: int = 400) -> None:
    """Print the table."""
    print(
        f"{reviewers} reviewers each, up to {most} answers, precision {precision:g}, seeds 0 to 5"
    )
    print("| labels | ever broken | ever broken, usual bound | guaranteed after all answers |")
    print("| --- | --- | --- | --- |")
    for seed, world in enumerate(WORLDS):
        done = simulate(world, reviewers, precision, most, seed)
        cells = (f"{done.broken:.1%}", f"{done.usual:.1%}", f"{done.guaranteed:.0%}")
        print(f"| {world.name} | {' | '.join(cells)} |", flush=True)
    print(machine())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reviewers", type=int, default=400)
    parser.add_argument("--precision", type=float, default=0.95)
    parser.add_argument("--most", type=int, default=400)
    run(**vars(parser.parse_args()))
