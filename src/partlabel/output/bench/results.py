"""Results of trainings, a mapping of figures each, and what several seeds say together."""

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
    """A line a result, with every figure that any of them has."""
    flat = [{**r, "chosen": json.dumps(r["chosen"])} for r in results]
    names = list(dict.fromkeys(name for line in flat for name in line))
    with atomic_file(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        text.detach()


def figures_of(results: list[Result], figure: str) -> list[float]:
    """This figure of each result that has it, as a number."""
    found = (result.get(figure) for result in results)
    return [value for value in found if value is not None and not math.isnan(value)]


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and deviation over seeds; one value has no deviation.

    >>> spread([0.25, 0.75]), spread([0.5])
    ((0.5, 0.3535533905932738), (0.5, None))
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return float(np.mean(values)), deviation
