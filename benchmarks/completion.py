"""Whether `complete` keeps its promises: labels are hidden, filled in, and compared with the truth.

    python -m benchmarks.completion voc/labels.csv --images voc/images

For each draw of the hidden labels, the holdout and the weights, a head is trained on frozen
features and the hidden labels are filled in. A promise is made for one kind of label of one class
(or of pooled classes); it is broken if fewer of the labels filled in are right than was promised.
One in twenty may be. "Pairs" are a class and a draw with anything filled in, and those of them in
which fewer than promised are right.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.report import machine
from partlabel import LabelTable, read_labels, train
from partlabel.judging.completion import Completion, complete_run
from partlabel.labels import PRESENT, simulate
from partlabel.output.bench.sheets import Sheet, markdown

SETTINGS: tuple[tuple[str, float | None, str, dict[str, Any]], ...] = (
    ("partial", 0.1, "bce", {}),
    ("partial", 0.3, "bce", {}),
    ("single-positive", None, "em", {"alpha": "auto"}),
    ("single-positive", None, "an", {}),
    ("positive+negatives", None, "bce", {}),
)


@dataclass
class Tally:
    """What came of the promises of several draws."""

    made: int = 0
    broken: int = 0
    pairs: int = 0
    below: int = 0
    unknown: int = 0
    filled: int = 0
    right: int = 0
    present: int = 0
    found: int = 0
    said: int = 0

    def add(self, done: Completion, given: LabelTable, truth: LabelTable) -> None:
        """Count what was filled in, where the truth is known."""
        values, true = done.table.dense(), truth.dense()
        hidden = (given.dense() == 0) & (true != 0)
        filled, right = hidden & (values != 0), values == true
        self.unknown += int(hidden.sum())
        self.filled += int(filled.sum())
        self.right += int(right[filled].sum())
        self.present += int((hidden & (true == PRESENT)).sum())
        self.said += int((filled & (values == PRESENT)).sum())
        self.found += int((filled & right & (true == PRESENT)).sum())
        for value, basis, classes in done.groups():
            for group in [[j] for j in classes] if basis == "class" else [classes]:
                here = filled[:, group] & (values[:, group] == value)
                if here.any():
                    self.made += 1
                    self.broken += bool(right[:, group][here].mean() < done.precision)
        for j in np.flatnonzero(filled.any(axis=0)):
            self.pairs += 1
            self.below += bool(right[filled[:, j], j].mean() < done.precision)

    def row(self) -> list[str]:
        """For the table."""
        return [
            f"{self.broken} of {self.made} (at most {binom.ppf(0.99, self.made, 0.05):.0f})",
            f"{self.below} of {self.pairs} (at most {binom.ppf(0.99, self.pairs, 0.05):.0f})",
            f"{self.filled / max(self.unknown, 1):.1%}",
            f"{self.right / max(self.filled, 1):.2%}",
            f"{1 - self.present / max(self.unknown, 1):.2%}",
            f"{self.found / max(self.present, 1):.1%}",
            f"{self.found / self.said:.1%}" if self.said else "-",
        ]


def main() -> None:
    """Train, complete and compare."""
    parser = argparse.ArgumentParser(description="Does `complete` keep its promises?")
    parser.add_argument("labels", type=Path, help="a full label file")
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--min-precision", type=float, default=0.95)
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args()
    full = read_labels(given.labels).split(given.split).with_splits(None)
    rows = []
    for strategy, proportion, method, options in SETTINGS:
        tally = Tally()
        for seed in range(given.draws):
            labels = simulate.hide(full, strategy, proportion, seed, holdout=0.2)
            with tempfile.TemporaryDirectory() as folder:
                run = train(
                    labels,
                    given.images,
                    Path(folder) / "run",
                    cache=given.cache,
                    method=method,
                    options=options,
                    frozen="all",
                    size=given.size,
                    epochs=10,
                    weight_decay=1e-3,
                    seed=seed,
                )
                done = complete_run(run, given.min_precision)
            tally.add(done, labels, full)
        share = "" if proportion is None else f" {proportion:.0%}"
        rows.append([f"{strategy}{share}, `{method}`", *tally.row()])
        print(rows[-1], flush=True)
    header = ["labels, method", "promises broken", "pairs below", "filled in", "right"]
    header += ["right if all were absent", "present found", "of what is called present, right"]
    print(f"\n{machine()}; {given.draws} draws; {given.min_precision:.0%} promised\n")
    print(markdown(Sheet(header, rows)))


if __name__ == "__main__":
    main()
