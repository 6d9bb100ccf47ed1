"""The results of trainings, one mapping of figures each, and statistics over seeds."""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partlabel.base.files import atomic_file

Result = dict[str, Any]


def write_results(path: Path, results: list[Result]) -> None:
    """Write one line per result, with a column for every figure that any result has."""
    lines = [
        {name: value for name, value in result.items() if not isinstance(value, list)}
        | {"chosen": json.dumps(result["chosen"])}
        for result in results
    ]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    with atomic_file(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        text.detach()


def name_of_labels(strategy: str, proportion: float | None) -> str:
    """How a strategy with its proportion is called in tables and messages.

    >>> name_of_labels("partial", 0.5), name_of_labels("full", None)
    ('partial 50%', 'full')
    """
    return strategy if proportion is None else f"{strategy} {100 * proportion:g}%"


def figures_of(results: list[Result], figure: str) -> list[float]:
    """The values of a figure, without those of results that lack it."""
    values = (result.get(figure) for result in results)
    return [value for value in values if value is not None and not math.isnan(value)]


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation over seeds; a single value has no deviation.

    >>> spread([0.25, 0.75]), spread([0.5])
    ((0.5, 0.3535533905932738), (0.5, None))
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return float(np.mean(values)), deviation
