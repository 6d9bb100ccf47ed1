"""How much of a label graph is left when labels are hidden.

    python -m benchmarks.label_graph labels.csv

Any label file with (nearly) full labels, or a NumPy file with an array [n, C] of 0 and 1.
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
    found = next(a for a in np.load(path, allow_pickle=False).values() if a.ndim == 2)
    names = (f"{i}" for i in range(len(found)))
    return LabelTable(names, [f"c{j}" for j in range(found.shape[1])], np.where(found > 0, 1, -1))


def _rates(table: LabelTable) -> np.ndarray:
    """[C, C] the share of a class's images that have another, -1 for itself."""
    counts = count_pairs(table).toarray().astype(float)
    rates = counts / np.maximum(np.diag(counts), 1)[:, None]
    np.fill_diagonal(rates, -1)
    return rates


def run(path: Path) -> None:
    """A line for each share of labels known."""
    table = _read(path)
    true = _rates(table)
    best = np.argsort(-true, axis=1, kind="stable")[:, :LINKS]
    classes = len(true)
    off = ~np.eye(classes, dtype=bool)
    present = table.counts().present.sum() / len(table)
    print(f"{machine()}; {len(table):,} images, {classes} classes, {present:.2f} present in each")
    strongest = np.take_along_axis(true, best, axis=1)
    print(
        f"a class comes with its {LINKS} commonest others in {strongest.mean():.1%} of its images"
    )
    titles = "pairs seen per class", f"of {LINKS} links right", "rank correlation"
    print(f"{'known':>6} {titles[0]:>21} {titles[1]:>17} {titles[2]:>17}")
    for share in (0.01, 0.03, 0.1, 0.3, 1.0):
        seen, right, ranks = [], [], []
        for seed in range(SEEDS):
            part = simulate.partial(table, share, seed)
            counts = count_pairs(part).toarray()
            found = _rates(part)
            guess = np.argsort(-found, axis=1, kind="stable")[:, :LINKS]
            seen.append((counts.sum(axis=1) - np.diag(counts)).mean())
            right.append(np.mean([np.isin(g, b).mean() for g, b in zip(guess, best, strict=True)]))
            ranks.append(spearmanr(found[off], true[off]).statistic)
        row = np.mean(seen), np.mean(right), np.mean(ranks)
        print(f"{share:>6.0%} {row[0]:>21,.1f} {row[1]:>17.1%} {row[2]:>17.2f}", flush=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
