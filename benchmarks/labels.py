"""A table of the size of Open Images: 9,000,000 images, 5,000 classes, 60,000,000 known cells."""

import gc
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse

from benchmarks.report import peak, print_result, resident, timed
from partlabel import LabelTable

IMAGES, CLASSES, KNOWN = 9_000_000, 5_000, 60_000_000


def _matrix() -> sparse.csr_array:
    rng = np.random.default_rng(0)
    starts = np.sort(rng.integers(0, KNOWN, IMAGES - 1))
    starts = np.concatenate([[0], starts, [KNOWN]])
    lengths = np.diff(starts)
    # the columns of a row differ: they start at random and continue with a fixed stride
    columns = np.arange(KNOWN, dtype=np.int32)
    columns -= np.repeat(starts[:-1].astype(np.int32), lengths)
    columns *= 1009
    columns += np.repeat(rng.integers(0, CLASSES, IMAGES, dtype=np.int32), lengths)
    columns %= CLASSES
    values = rng.choice(np.array([-1, 1], dtype=np.int8), KNOWN)
    return sparse.csr_array((values, columns, starts), shape=(IMAGES, CLASSES))


def _build() -> LabelTable:
    names = [f"{number:016x}" for number in range(IMAGES)]
    classes = [f"/m/{number:05x}" for number in range(CLASSES)]
    matrix = _matrix()
    print_result(
        "arrays of 9M x 5,000 cells, 60M known: peak memory", f"{peak():.0f} MB", "none", True
    )
    seconds, table = timed(lambda: LabelTable(names, classes, matrix))
    print_result("  build the table", f"{seconds:.1f} s", "none", True)
    print_result(
        "  peak memory, including the arrays", f"{peak():.0f} MB", "< 3072 MB", peak() < 3072
    )
    return table


def run() -> None:
    """Build, save and open a table, and read batches from it."""
    table = _build()
    sample = np.arange(0, IMAGES, IMAGES // 256)
    expected = table.dense(sample)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.arrow"
        seconds, _ = timed(partial(table.save, path))
        size = path.stat().st_size / 1e6
        print_result("  save", f"{seconds:.1f} s, {size:.0f} MB", "none", True)
        del table
        gc.collect()
        before = resident()
        seconds, opened = timed(partial(LabelTable.open, path))
        grown = resident() - before
        print_result("  open", f"{seconds * 1e3:.1f} ms", "< 1 s", seconds < 1)
        print_result(
            "  growth of resident memory on opening", f"{grown:.1f} MB", "< 50 MB", grown < 50
        )
        rng = np.random.default_rng(1)
        batches = [rng.integers(0, IMAGES, 256) for _ in range(50)]
        times = [timed(partial(opened.dense, rows))[0] for rows in batches]
        middle = float(np.median(times)) * 1e3
        print_result(
            "  read 256 random rows as dense array, median of 50",
            f"{middle:.2f} ms",
            "< 2 ms",
            middle < 2,
        )
        assert np.array_equal(opened.dense(sample), expected)
