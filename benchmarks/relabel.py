"""What one round of pseudo-labels costs, and what a memory of a billion cells holds."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import peak, resident, tell, timed
from partlabel.labels import LabelTable
from partlabel.labels.cells import from_triples
from partlabel.learning.pseudo_labels import LabelMemory, Round, choose

IMAGES, CLASSES, BATCH, SHARE = 120_000, 81, 16, 0.18  # NUS-WIDE, 90% of its labels in five rounds


def _by_sorting(scores: NDArray[Any], known: NDArray[Any], number: int) -> NDArray[Any]:
    """As one would write it first: stack up batches, sort each class, write label by label."""
    labels = known.astype(np.float64)
    stacked, rows = scores[:0], np.arange(0)
    for start in range(0, len(scores), BATCH):
        stacked = np.vstack((scores[start : start + BATCH], stacked))
        rows = np.hstack((np.arange(start, min(start + BATCH, len(scores))), rows))
    for column in range(scores.shape[1]):
        unknown = known[rows, column] == 0
        here, at = stacked[unknown, column], rows[unknown]
        for place in np.argsort(here)[:number]:
            labels[at[place], column] = -here[place]
    return labels


def _by_partition(scores: NDArray[Any], free: NDArray[Any], number: int) -> None:
    """The least that can be done class by class: one partition of its unknown scores."""
    for column in range(scores.shape[1]):
        np.partition(scores[free[:, column], column], number - 1)


def _speed() -> None:
    rng = np.random.default_rng(0)
    # all different and none 0, so that every way of sorting agrees
    ranks = rng.permuted(np.tile(np.arange(1, IMAGES + 1), (CLASSES, 1)), axis=1).T
    scores = np.ascontiguousarray(ranks, dtype=np.float32) / np.float32(IMAGES + 1)
    known = np.zeros((IMAGES, CLASSES), dtype=np.int8)
    known[np.arange(IMAGES), rng.integers(0, CLASSES, IMAGES)] = 1
    free, number = known == 0, int(SHARE * IMAGES)
    quotas, none = np.full(CLASSES, number), np.zeros(CLASSES, dtype=np.int64)
    ours, chosen = timed(lambda: choose(scores, free, quotas, none), repeat=5)
    partition, _ = timed(lambda: _by_partition(scores, free, number), repeat=5)
    sorting, labels = timed(lambda: _by_sorting(scores, known, number))
    assert ((labels < 0) == (chosen < 0)).all()
    what = f"relabelling {IMAGES:,} x {CLASSES}"
    ratio = sorting / ours
    tell(f"{what}: sorting with vstack / ours", f"{ratio:.0f}x", ">= 10x", ratio >= 10)
    ratio = partition / ours
    tell(f"{what}: np.partition per class / ours", f"{ratio:.1f}x", ">= 1x", ratio >= 1)


def _size() -> None:
    images, classes = 200_000, 5_000
    rows = np.arange(images)
    cells = from_triples(rows, rows % classes, np.ones(images, dtype=np.int8), (images, classes))
    names = [f"c{j}" for j in range(classes)]
    table = LabelTable.from_cells([f"{i}" for i in rows], names, cells)
    with tempfile.TemporaryDirectory() as folder:
        before = resident()
        seconds, memory = timed(lambda: LabelMemory(table, Path(folder) / "memory"))
        grown = resident() - before
        tell("memory of 10^9 cells: made", f"{seconds:.1f} s, +{grown:.0f} MB", "-", True)
        this, rng = Round(memory, 1), np.random.default_rng(0)
        for start in range(0, images, 1000):
            batch = rng.random((1000, classes), dtype=np.float32)
            this.score(np.arange(start, start + 1000), batch)
        seconds, given = timed(lambda: this.give(images // 10))
        read, _ = timed(lambda: memory.read(rng.permutation(images)[:32], 1), repeat=20)
        tell("one round of 10^8 labels", f"{seconds:.0f} s", "-", given == classes * (images // 10))
        tell("labels of 32 images x 5,000", f"{1e3 * read:.1f} ms", "<= 20 ms", read <= 0.02)
        # pages of a mapped file count as held while the system has room; they are not ours to keep
        anonymous = _anonymous()
        tell("of that not on disk", f"{anonymous:.0f} MB", "<= 3,000 MB", anonymous <= 3000)
        tell("peak with mapped pages", f"{peak():.0f} MB", "-", True)


def _anonymous() -> float:
    """Memory of this process that is no file's, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1e3
    return float("nan")


def run() -> None:
    """Speed of a choice, and cost of a large memory."""
    _speed()
    _size()
