"""Populations of arrays: what is unknown, what tests, and scores of all cells."""

from typing import Any

import numpy as np

from partlabel.metrics.sampling import Population, ReservedLabels, Unit
from partlabel.metrics.spread import spread_of


def population_of(
    scores: Any, labels: Any, unknown: Any, draws: Any, groups: Any, unit: Unit
) -> Population:
    """A population of arrays [n, C], of images in groups [n]."""
    rows, columns = np.nonzero(labels)
    number = int(groups.max(initial=0)) + 1
    counts = np.stack([unknown[groups == group].sum(axis=0) for group in range(number)])
    if unit == "image":
        counts, groups = counts.sum(axis=0, keepdims=True), np.zeros_like(groups)
    logits = scores[rows, columns]
    tests = ReservedLabels(
        columns,
        labels[rows, columns].astype(np.int8),
        logits,
        logits,
        draws[rows, columns],
        groups[rows],
        rows,
        rows,
    )
    return Population(spread_of(scores, unknown), counts, tests, unit)
