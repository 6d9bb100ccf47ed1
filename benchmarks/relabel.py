"""Time of one round of pseudo-labels, and memory use of a store of a billion cells."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import peak, print_result, resident, timed
from partlabel.labels import LabelTable
from partlabel.labels.cells import from_triples
from partlabel.learning.pseudo_labels import LabelMemory, Round, choose

IMAGES, CLASSES, BATCH, SHARE = 120_000, 81, 16, 0.18  # NUS-WIDE, 90% of its labels in five rounds


def _by_sorting(scores: NDArray[Any], known: NDArray[Any], number: int) -> NDArray[Any]:
    """A straightforward implementation: stack batches, sort each class, write single labels."""
    labels = known.astype(np.float64)
    stacked, rows = scores[:0], np.arange(0)
    for start in range(0, len(scores), BATCH):
        stacked = np.vstack((scores[start : start + BATCH], stacked))
        rows = np.hstack((np.arange(start, min(start + BATCH, len(scores))), rows))
    for column in range(scores.shape[1]):
        unknown = known[rows, column] == 0
        unknown_scores, unknown_rows = stacked[unknown, column], rows[unknown]
        for i in np.argsort(unknown_scores)[:number]:
            labels[unknown_rows[i], column] = -unknown_scores[i]
    return labels


def _by_partition(scores: NDArray[Any], free: NDArray[Any], number: int) -> None:
    """The least work for a loop over classes: one partition of the unknown scores of each class."""
    for column in range(scores.shape[1]):
        np.partition(scores[free[:, column], column], number - 1)


def _speed() -> None:
    rng = np.random.default_rng(0)
    # all scores differ and none is 0, so that both implementations choose the same labels
    ranks = rng.permuted(np.tile(np.arange(1, IMAGES + 1), (CLASSES, 1)), axis=1).T
    scores = np.ascontiguousarray(ranks, dtype=np.float32) / np.float32(IMAGES + 1)
    known = np.zeros((IMAGES, CLASSES), dtype=np.int8)
    known[np.arange(IMAGES), rng.integers(0, CLASSES, IMAGES)] = 1
    free, number = known == 0, int(SHARE * IMAGES)
    quotas, none = np.full(CLASSES, number), np.zeros(CLASSES, dtype=np.int64)
    seconds, chosen = timed(lambda: choose(scores, free, quotas, none), repeat=5)
    partition, _ = timed(lambda: _by_partition(scores, free, number), repeat=5)
    sorting, labels = timed(lambda: _by_sorting(scores, known, number))
    assert ((labels < 0) == (chosen < 0)).all()
    case = f"relabelling {IMAGES:,} x {CLASSES}"
    ratio = sorting / seconds
    print_result(f"{case}: sorting / partlabel", f"{ratio:.0f}x", ">= 10x", ratio >= 10)
    ratio = partition / seconds
    print_result(f"{case}: np.partition / partlabel", f"{ratio:.1f}x", ">= 1x", ratio >= 1)


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
        print_result(
            "create a store of 10^9 cells", f"{seconds:.1f} s, +{grown:.0f} MB", "none", True
        )
        current, rng = Round(memory, 1), np.random.default_rng(0)
        for start in range(0, images, 1000):
            batch = rng.random((1000, classes), dtype=np.float32)
            current.score(np.arange(start, start + 1000), batch)
        seconds, number = timed(lambda: current.give(images // 10))
        read_seconds, _ = timed(lambda: memory.read(rng.permutation(images)[:32], 1), repeat=20)
        complete = number == classes * (images // 10)
        print_result("one round that gives 10^8 labels", f"{seconds:.0f} s", "none", complete)
        milliseconds = 1e3 * read_seconds
        print_result(
            "read the labels of 32 images x 5,000 classes",
            f"{milliseconds:.1f} ms",
            "<= 20 ms",
            milliseconds <= 20,
        )
        # the pages of a mapped file are resident only as long as the system has memory to spare
        anonymous = _anonymous()
        print_result(
            "memory that is not mapped from a file",
            f"{anonymous:.0f} MB",
            "<= 3,000 MB",
            anonymous <= 3000,
        )
        print_result("peak memory, including mapped pages", f"{peak():.0f} MB", "none", True)


def _anonymous() -> float:
    """Resident memory of this process that is not mapped from a file, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1e3
    return float("nan")


def run() -> None:
    """Time to choose labels, and memory use of a large store."""
    _speed()
    _size()
