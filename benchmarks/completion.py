"""Check what `complete` finds and guarantees: labels are hidden, filled in, and compared.

    python -m benchmarks.completion voc/labels.csv --images voc/images
    python -m benchmarks.completion voc/labels.csv --images voc/images --only partial-10 merged

Each draw hides other labels. No image is fully labelled, except with `single-positive`. A guarantee
is given for the present or the absent labels of one class, or of several classes together. It is
broken if fewer of the labels that rest on it are right than it states; one in twenty may be.
`suspects` flips 100 known labels, and counts those among the first 100 suspects.
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from benchmarks.report import machine
from partlabel import LabelTable, read_labels, train
from partlabel.judging.completion import Completion, complete_run
from partlabel.labels import ABSENT, PRESENT, simulate
from partlabel.output.bench.sheets import Sheet, markdown
from partlabel.training.run import Run

FLIPS = 100
PLAIN: dict[str, Any] = {"frozen": "all", "optimizer": "lbfgs", "weight_decay": 1e-3, "epochs": 10}


def mixed_origins(full: LabelTable, seed: int) -> LabelTable:
    """Two teams that looked for different classes, web tags, and images without labels.

    600 images for three classes, 600 for two others, 300 with one tag and 300 with nothing; of the
    five classes that are most often present. Images with a tag show one of these. All others are
    drawn at random, so that those that test are like those that are completed.
    """
    order = np.argsort(-full.counts().present, kind="stable")[:5].tolist()
    names = [full.classes[j] for j in order]
    rng = np.random.default_rng(seed)
    full = full.with_classes(names)
    order = rng.permutation(len(full))
    shows_one = (full.dense() == PRESENT).any(axis=1)[order[1500:]]
    chosen = np.concatenate([order[:1500], order[1500:][shows_one][:300]])
    kinds = np.repeat([0, 1, 3, 2], [600, 600, 300, 300])
    by_row = np.argsort(chosen)
    table, kind = full.subset(chosen[by_row]), kinds[by_row]
    truth = table.dense()
    looked_for = np.array([[1, 0, 1, 0, 1], [0, 1, 0, 1, 0], [0] * 5, [0] * 5], dtype=bool)
    keep = looked_for[kind]
    draws = np.where(truth == PRESENT, rng.random(truth.shape), 2.0)
    tag = (draws == draws.min(axis=1, keepdims=True)) & (truth == PRESENT)
    keep |= (kind == 2)[:, None] & tag
    labels = LabelTable(table.ids, table.classes, np.where(keep, truth, 0))
    cells = labels.cells.with_details(origins=(kind[labels.cells.rows] + 1).astype(np.uint8))
    return LabelTable.from_cells(table.ids, names, cells, None, ["team", "others", "web", "none"])


class Scenario(NamedTuple):
    """Which labels are known, and the precision to guarantee."""

    hide: Callable[[LabelTable, int], LabelTable]
    precision: float


SCENARIOS = {
    "partial-10": Scenario(lambda full, seed: simulate.partial(full, 0.1, seed), 0.95),
    "partial-30": Scenario(lambda full, seed: simulate.partial(full, 0.3, seed), 0.95),
    "merged": Scenario(simulate.merged, 0.95),
    "mixed": Scenario(mixed_origins, 0.95),
    "single-positive": Scenario(
        lambda full, seed: simulate.hide(full, "single-positive", seed=seed, holdout=0.2), 0.9
    ),
}


@dataclass
class Tally:
    """Counts over several draws."""

    made: dict[int, int] = field(default_factory=lambda: {PRESENT: 0, ABSENT: 0})
    broken: dict[int, int] = field(default_factory=lambda: {PRESENT: 0, ABSENT: 0})
    filled: dict[int, int] = field(default_factory=lambda: {PRESENT: 0, ABSENT: 0})
    right: dict[int, int] = field(default_factory=lambda: {PRESENT: 0, ABSENT: 0})
    hidden: dict[int, int] = field(default_factory=lambda: {PRESENT: 0, ABSENT: 0})
    found: list[float] = field(default_factory=list)  # of the present labels, per draw
    seconds: list[float] = field(default_factory=list)

    def add(self, completion: Completion, labels: LabelTable, truth: LabelTable) -> None:
        """Count the unknown labels and those filled in, where the truth is known."""
        true = truth.with_classes(labels.classes).dense(truth.ids.find(labels.ids))
        values = completion.table.with_classes(labels.classes).dense()
        hidden = labels.dense() == 0
        for value in (PRESENT, ABSENT):
            ours = hidden & (values == value)
            self.filled[value] += int(ours.sum())
            self.right[value] += int((ours & (true == value)).sum())
            self.hidden[value] += int((hidden & (true == value)).sum())
        present = hidden & (true == PRESENT)
        self.found.append(float((present & (values == PRESENT)).sum() / max(present.sum(), 1)))
        for group in completion.groups():
            if group.filled:
                self.made[group.value] += 1
                right = (true == group.value)[completion.cells_of(group)].mean()
                self.broken[group.value] += bool(right < completion.precision)

    def row(self) -> list[str]:
        """The cells of one row of the table."""
        cells = [
            f"{100 * np.mean(self.found):.1f}%",
            f"{100 * min(self.found):.1f}-{100 * max(self.found):.1f}%",
            f"{self.right[PRESENT] / max(self.filled[PRESENT], 1):.1%}",
            f"{self.right[ABSENT] / max(self.hidden[ABSENT], 1):.1%}",
            f"{self.right[ABSENT] / max(self.filled[ABSENT], 1):.1%}",
        ]
        for value in (PRESENT, ABSENT):
            most = int(binom.ppf(0.99, self.made[value], 0.05))
            cells.append(f"{self.broken[value]} of {self.made[value]} (at most {most})")
        return [*cells, f"{np.mean(self.seconds):.0f} s"]


HEADER = ["labels", "present found", "lowest-highest", "correct", "absent found", "correct"]
HEADER += ["broken: present", "broken: absent", "time of complete"]


def train_on(labels: LabelTable, args: Any, folder: str, seed: int) -> Run:
    """A run as a user would train it."""
    settings = {"budget": args.budget} if args.method == "auto" else PLAIN
    out = Path(folder) / "run"
    return train(
        labels, args.images, out, cache=args.cache, method=args.method, seed=seed, **settings
    )


def run_scenario(name: str, full: LabelTable, args: Any) -> list[str]:
    """Hide, train, complete and compare, in several draws."""
    tally, scenario = Tally(), SCENARIOS[name]
    for seed in range(args.first, args.first + args.draws):
        labels = scenario.hide(full, seed)
        with tempfile.TemporaryDirectory() as folder:
            run = train_on(labels, args, folder, seed)
            started = time.monotonic()
            completion = complete_run(run, scenario.precision)
            tally.seconds.append(time.monotonic() - started)
        tally.add(completion, labels, full)
        print(f"{name}, draw {seed}: {100 * tally.found[-1]:.1f}% of present found", flush=True)
    return [f"{name}, {scenario.precision:.0%}", *tally.row()]


def count_suspects(full: LabelTable, difficult: Path | None, args: Any) -> list[int]:
    """How many of the first 100 suspects are labels that were flipped, per draw."""
    hits = []
    for seed in range(args.first, args.first + args.draws):
        labels = simulate.partial(full, 0.3, seed).dense()
        if difficult is not None:
            for line in difficult.read_text().splitlines()[1:]:
                image, name = line.split(",")[:2]
                row, column = full.ids.find([image]).item(), full.classes.find([name]).item()
                if row >= 0 and column >= 0:
                    labels[row, column] = 0
        rng = np.random.default_rng(seed)
        rows, columns = np.nonzero(labels)
        flipped = rng.permutation(len(rows))[:FLIPS]
        labels[rows[flipped], columns[flipped]] *= -1
        wrong = {
            (full.ids[int(i)], full.classes[int(j)])
            for i, j in zip(rows[flipped], columns[flipped], strict=True)
        }
        with tempfile.TemporaryDirectory() as folder:
            run = train_on(LabelTable(full.ids, full.classes, labels), args, folder, seed)
            first = complete_run(run).suspects[:FLIPS]
        hits.append(sum((one.image, one.name) in wrong for one in first))
        print(f"suspects, draw {seed}: {hits[-1]} of {len(first)} were flipped", flush=True)
    return hits


def main() -> None:
    """Train, complete, and compare with the truth."""
    parser = argparse.ArgumentParser(description="Check the guarantees of `complete`.")
    parser.add_argument("labels", type=Path, help="a label file without unknown labels")
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first draw")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--budget", default="small")
    parser.add_argument("--only", nargs="*", default=[*SCENARIOS, "suspects"])
    parser.add_argument("--difficult", type=Path, help="labels to leave out of the suspects")
    parser.add_argument("--cache", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    full = read_labels(args.labels).split(args.split).with_splits(None)
    rows = [run_scenario(name, full, args) for name in args.only if name != "suspects"]
    print(f"\n{machine()}; {args.draws} draws, {args.method}\n")
    print(markdown(Sheet(HEADER, rows)))
    if "suspects" in args.only:
        print(f"\nsuspects: {count_suspects(full, args.difficult, args)}")


if __name__ == "__main__":
    main()
