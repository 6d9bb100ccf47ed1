"""Thresholds of few labels: those of a class alone, and those that lean on the other classes.

    python -m benchmarks.thresholds labels.csv features.npy [--draws 6]

A random half of the training images is labelled in part. One logistic regression per class is
solved on four fifths of them, and thresholds are chosen on the known labels of the last fifth. The
other half of the training images tests.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.report import machine
from benchmarks.suggestions import heads, load, parts
from partlabel.labels import simulate
from partlabel.metrics import evaluate, known_cells
from partlabel.metrics.calibration import calibrate_cells
from partlabel.metrics.class_thresholds import balanced_thresholds, own_thresholds
from partlabel.output.bench.sheets import Sheet, markdown

FIGURES = ("macro_F1", "micro_F1", "CP")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("labels", type=Path)
    parser.add_argument("features", type=Path)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.02, 0.05, 0.1, 0.3])
    options = parser.parse_args()
    (truth, features), test = parts(*load(options.labels, options.features), half=True)
    rows = []
    for share in options.shares:
        found: dict[str, list[list[float]]] = {"of the class alone": [], "leaning on all": []}
        for draw in range(options.draws):
            labels = simulate.partial(truth, share, seed=draw)
            held = np.random.default_rng(draw).random(len(truth)) < 0.2
            weights, intercepts = heads(labels.subset(np.flatnonzero(~held)), features[~held])
            scores = expit(features[held] @ weights + intercepts)
            new = expit(test[1] @ weights + intercepts)
            known: NDArray[np.int8] = labels.dense()[held]
            cells = known_cells(scores, known)
            alone = np.nan_to_num(own_thresholds(cells), nan=0.5)
            leaning = balanced_thresholds(cells, calibrate_cells(cells))
            for name, limits in zip(found, (alone, leaning), strict=True):
                result = evaluate(new, test[0], limits)
                found[name].append([100 * result[figure] for figure in FIGURES])
        for name, figures in found.items():
            means = [f"{mean:.1f}" for mean in np.mean(figures, axis=0)]
            rows.append([f"{100 * share:g}%", name, *means])
    print(machine())
    print(markdown(Sheet(["known", "threshold", *FIGURES], rows)))


if __name__ == "__main__":
    main()
