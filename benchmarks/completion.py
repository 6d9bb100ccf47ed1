"""Check the guarantees of `complete`: labels are hidden, filled in, and compared with the truth.

    python -m benchmarks.completion voc/labels.csv --images voc/images

Each draw hides other labels, and has its own holdout and its own initial weights. A head is trained
on frozen features, and the hidden labels are filled in. A guarantee is given for the present or the
absent labels of one class (or of pooled classes). It is wrong if the precision of the labels filled
in is lower than guaranteed; one in twenty may be wrong. The table also counts classes per draw: all
that have any label filled in, and those whose precision is lower than guaranteed.
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
    """Counts over several draws."""

    guarantees: int = 0
    wrong: int = 0  # guarantees
    classes: int = 0
    below: int = 0  # classes whose precision is lower than guaranteed
    unknown: int = 0  # labels
    filled: int = 0  # labels
    right: int = 0  # labels filled in correctly
    present: int = 0  # unknown labels that are present in truth
    hits: int = 0  # labels correctly filled in as present
    filled_present: int = 0  # labels filled in as present

    def add(self, completion: Completion, labels: LabelTable, truth: LabelTable) -> None:
        """Count the unknown labels and those filled in, where the truth is known."""
        values, true = completion.table.dense(), truth.dense()
        hidden = (labels.dense() == 0) & (true != 0)
        filled, right = hidden & (values != 0), values == true
        self.unknown += int(hidden.sum())
        self.filled += int(filled.sum())
        self.right += int(right[filled].sum())
        self.present += int((hidden & (true == PRESENT)).sum())
        self.filled_present += int((filled & (values == PRESENT)).sum())
        self.hits += int((filled & right & (true == PRESENT)).sum())
        for value, basis, classes in completion.groups():
            for group in [[j] for j in classes] if basis == "class" else [classes]:
                cells = filled[:, group] & (values[:, group] == value)
                if cells.any():
                    self.guarantees += 1
                    self.wrong += bool(right[:, group][cells].mean() < completion.precision)
        for j in np.flatnonzero(filled.any(axis=0)):
            self.classes += 1
            self.below += bool(right[filled[:, j], j].mean() < completion.precision)

    def row(self) -> list[str]:
        """The cells of one row of the table."""
        return [
            _failures(self.wrong, self.guarantees),
            _failures(self.below, self.classes),
            f"{self.filled / max(self.unknown, 1):.1%}",
            f"{self.right / max(self.filled, 1):.2%}",
            f"{1 - self.present / max(self.unknown, 1):.2%}",
            f"{self.hits / max(self.present, 1):.1%}",
            f"{self.hits / self.filled_present:.1%}" if self.filled_present else "-",
        ]


def _failures(number: int, total: int) -> str:
    """A number of failures, and how many are plausible by chance if one in twenty may fail."""
    return f"{number} of {total} (at most {binom.ppf(0.99, total, 0.05):.0f})"


def main() -> None:
    """Train, complete, and compare with the truth."""
    parser = argparse.ArgumentParser(description="Check the guarantees of `complete`.")
    parser.add_argument("labels", type=Path, help="a label file without unknown labels")
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--min-precision", type=float, default=0.95)
    parser.add_argument("--cache", type=Path)
    args = parser.parse_args()
    full = read_labels(args.labels).split(args.split).with_splits(None)
    rows = []
    for strategy, proportion, method, options in SETTINGS:
        tally = Tally()
        for seed in range(args.draws):
            labels = simulate.hide(full, strategy, proportion, seed, holdout=0.2)
            with tempfile.TemporaryDirectory() as folder:
                run = train(
                    labels,
                    args.images,
                    Path(folder) / "run",
                    cache=args.cache,
                    method=method,
                    options=options,
                    frozen="all",
                    size=args.size,
                    epochs=10,
                    weight_decay=1e-3,
                    seed=seed,
                )
                completion = complete_run(run, args.min_precision)
            tally.add(completion, labels, full)
        share = "" if proportion is None else f" {proportion:.0%}"
        rows.append([f"{strategy}{share}, `{method}`", *tally.row()])
        print(" | ".join(rows[-1]), flush=True)
    header = ["labels, method", "wrong guarantees", "classes below", "filled in", "correct"]
    header += ["correct if all absent", "recall of present", "precision of present"]
    print(f"\n{machine()}; {args.draws} draws; guaranteed precision {args.min_precision:.0%}\n")
    print(markdown(Sheet(header, rows)))


if __name__ == "__main__":
    main()
