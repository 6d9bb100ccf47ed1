"""Wrong labels found by cleanlab and by partlabel, from the same training.

    python -m benchmarks.label_errors voc/labels.csv --images voc/images

Labels of fully labelled images are flipped at random. ``auto`` is trained on the result, on folds.
cleanlab gets the probabilities of the models that did not see an image (``partlabel export --to
cleanlab``), partlabel lists its suspects (``partlabel complete``). The table counts how many of
the first entries of each list were flipped. A third list has the labels that the same
probabilities contradict most, without any further method.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
from numpy.typing import NDArray

from benchmarks.report import machine
from partlabel import LabelTable, complete, export, read_labels, train
from partlabel.output.bench.sheets import Sheet, markdown

Cell = tuple[str, str]  # image and class


def flip(table: LabelTable, number: int, seed: int) -> tuple[LabelTable, set[Cell]]:
    """A table with this many random labels inverted, and these."""
    labels = table.dense().copy()
    cells = np.random.default_rng(seed).choice(labels.size, number, replace=False)
    rows, columns = np.divmod(cells, labels.shape[1])
    labels[rows, columns] *= -1
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return LabelTable(table.ids, table.classes, labels), {
        (table.ids[row], table.classes[column]) for row, column in pairs
    }


def ranked(quality: NDArray[np.float64], data: dict[str, Any]) -> list[Cell]:
    """The cells of exported data, those with the lowest quality first."""
    rows, columns = np.unravel_index(np.argsort(quality, axis=None, kind="stable"), quality.shape)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(data["ids"][row], data["classes"][column]) for row, column in pairs]


def lists_of(table: LabelTable, images: Path, seed: int, budget: str) -> dict[str, list[Cell]]:
    """The labels that each way finds most doubtful, the worst first."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = train(table, images, folder / "run", budget=budget, seed=seed)
        export(run, folder / "data.json", "cleanlab")
        data = json.loads((folder / "data.json").read_text())
        suspects = complete(run).suspects
    probabilities = np.array(data["pred_probs"])
    classes = range(len(data["classes"]))
    given = np.array([[column in present for column in classes] for present in data["labels"]])
    return {
        "cleanlab": ranked(get_label_quality_scores_per_class(data["labels"], probabilities), data),
        "suspects of complete": [(one.image, one.name) for one in suspects],
        "probability of the label itself": ranked(
            np.where(given, probabilities, 1 - probabilities), data
        ),
    }


def main() -> None:
    """Flip, train, list and count, once per seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("labels", type=Path)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", default="small")
    options = parser.parse_args()
    table = read_labels(options.labels).split(options.split)
    table = table.subset(np.flatnonzero((table.dense() != 0).all(axis=1)))
    plain = LabelTable(table.ids, table.classes, table.dense())
    print(machine())
    print(
        f"{len(table):,} images with all labels known, {options.flips} of "
        f"{table.dense().size:,} labels flipped"
    )
    found: dict[str, list[int]] = {}
    for seed in range(options.seeds):
        flipped, cells = flip(plain, options.flips, seed)
        for name, listed in lists_of(flipped, options.images, seed, options.budget).items():
            hits = len(cells & {*listed[: options.flips]})
            found.setdefault(name, []).append(hits)
            print(seed, name, hits, flush=True)
    rows = [[name, *map(str, hits), f"{np.mean(hits):.1f}"] for name, hits in found.items()]
    header = ["list", *(f"seed {seed}" for seed in range(options.seeds)), "mean"]
    print(markdown(Sheet(header, rows)))


if __name__ == "__main__":
    main()
