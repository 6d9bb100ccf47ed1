"""How much of a label graph can be recovered when labels are hidden.

    python -m benchmarks.label_graph labels.csv

The argument is a label file with few or no unknown labels, or a NumPy file (.npz) with an array
[n, C] of 0 and 1.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from benchmarks.report import machine
from partlabel.labels import LabelTable, simulate
from partlabel.labels.formats import read_labels
from partlabel.learning.cooccurrence import count_pairs

LINKS, SEEDS = 5, 3


def _read(path: Path) -> LabelTable:
    if path.suffix != ".npz":
        return read_labels(path)
    matrix = next(a for a in np.load(path, allow_pickle=False).values() if a.ndim == 2)
    names = (f"{i}" for i in range(len(matrix)))
    return LabelTable(names, [f"c{j}" for j in range(matrix.shape[1])], np.where(matrix > 0, 1, -1))


def _rates(table: LabelTable) -> np.ndarray:
    """The share of a class's images in which another class is present [C, C]; -1 for itself."""
    counts = count_pairs(table).toarray().astype(float)
    rates = counts / np.maximum(np.diag(counts), 1)[:, None]
    np.fill_diagonal(rates, -1)
    return rates


def run(path: Path) -> None:
    """Print one line per share of known labels."""
    table = _read(path)
    true_rates = _rates(table)
    true_links = np.argsort(-true_rates, axis=1, kind="stable")[:, :LINKS]
    classes = len(true_rates)
    off_diagonal = ~np.eye(classes, dtype=bool)
    present = table.counts().present.sum() / len(table)
    print(f"{machine()}; {len(table):,} images, {classes} classes, {present:.2f} present per image")
    strongest = np.take_along_axis(true_rates, true_links, axis=1)
    print(
        f"share of a class's images that contain one of its {LINKS} most frequent partners, "
        f"mean over partners: {strongest.mean():.1%}"
    )
    titles = "known pairs per class", f"correct of {LINKS} links", "rank correlation"
    print(f"{'share':>6} {titles[0]:>21} {titles[1]:>17} {titles[2]:>17}")
    for share in (0.01, 0.03, 0.1, 0.3, 1.0):
        pairs, correct, correlations = [], [], []
        for seed in range(SEEDS):
            part = simulate.partial(table, share, seed)
            counts = count_pairs(part).toarray()
            rates = _rates(part)
            links = np.argsort(-rates, axis=1, kind="stable")[:, :LINKS]
            pairs.append((counts.sum(axis=1) - np.diag(counts)).mean())
            shares = [
                np.isin(own, true).mean() for own, true in zip(links, true_links, strict=True)
            ]
            correct.append(np.mean(shares))
            correlations.append(spearmanr(rates[off_diagonal], true_rates[off_diagonal]).statistic)
        row = np.mean(pairs), np.mean(correct), np.mean(correlations)
        print(f"{share:>6.0%} {row[0]:>21,.1f} {row[1]:>17.1%} {row[2]:>17.2f}", flush=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
