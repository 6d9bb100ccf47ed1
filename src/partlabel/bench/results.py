"""Results of trainings, a mapping of figures each."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from partlabel.files import atomic_file


def write_results(path: Path, results: list[dict[str, Any]]) -> None:
    """A line a result, with every figure that any of them has."""
    flat = [{**r, "chosen": json.dumps(r["chosen"])} for r in results]
    names = list(dict.fromkeys(name for line in flat for name in line))
    with atomic_file(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        text.detach()
