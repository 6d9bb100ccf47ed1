"""Memory and time of ``train``, ``evaluate`` and ``complete`` on very many embeddings.

Each command runs in a process of its own, as a user would start it. Its processor time is compared
with that of a bare loop in torch over the same matrix products: a block of features from the file,
times the weights, and for training times the gradient too. Both have the same number of threads.
Processor time hardly depends on what else the machine does.

    python -m benchmarks scale                                # both sizes
    python -m benchmarks.scale --images 150000 --classes 300  # another one
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.report import machine, print_result
from partlabel.labels import LabelTable
from partlabel.labels.cells import Cells

SIZES = ((2_000_000, 1_000), (200_000, 5_000))  # images and classes
FEATURES, KNOWN = 512, 0.01
SIGNAL, OFFSET = 1.0, -1.0  # of the true logits: what is unknown can be told in part
BLOCK = 4096
GIB, RATIO = 6.0, 1.5
TRAINING = ["--method", "bce", "--optimizer", "lbfgs", "--weight-decay", "1e-6", "--epochs", "1"]


class Cost(NamedTuple):
    """What a process took, and the last line that it printed."""

    processor: float
    seconds: float
    gibibytes: float
    last_line: str


def make_data(folder: Path, images: int, classes: int) -> None:
    """Write features in half precision, and a label table with a share of known labels."""
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.standard_normal((classes, FEATURES), dtype=np.float32))
    weights *= SIGNAL / FEATURES**0.5
    vectors = np.lib.format.open_memmap(
        folder / "x.npy", mode="w+", dtype=np.float16, shape=(images, FEATURES)
    )
    numbers, columns, values = [], [], []
    for start in range(0, images, BLOCK):
        part = rng.standard_normal((min(BLOCK, images - start), FEATURES), dtype=np.float32)
        vectors[start : start + len(part)] = part
        chosen = np.flatnonzero(rng.random((len(part), classes), dtype=np.float32) < KNOWN)
        row, column = np.divmod(chosen, classes)
        logits = (torch.from_numpy(part) @ weights.T).numpy()[row, column] + OFFSET
        present = rng.logistic(size=len(row)) < logits
        numbers.append(np.bincount(row, minlength=len(part)))
        columns.append(column.astype(np.int32))
        values.append(np.where(present, 1, -1).astype(np.int8))
    vectors.flush()
    starts = np.concatenate([[0], np.cumsum(np.concatenate(numbers))]).astype(np.int64)
    ids = [f"{i:09d}" for i in range(images)]
    (folder / "x.npy.ids.txt").write_text("\n".join(ids) + "\n")
    cells = Cells(starts, np.concatenate(columns), np.concatenate(values))
    LabelTable.from_cells(ids, [f"c{j}" for j in range(classes)], cells).save(folder / "y.arrow")


def measured(function: str, *arguments: object, threads: int) -> Cost:
    """Call a function of this module in a process of its own."""
    code = (
        "import sys; from benchmarks import scale; "
        f"sys.exit(scale.{function}(*{[str(argument) for argument in arguments]!r}))"
    )
    limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    with tempfile.TemporaryFile() as out:
        started = time.monotonic()
        environment = {**os.environ, **limits}
        process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        lines = out.read().decode().splitlines()
    if process.returncode:
        raise SystemExit(f"{function} {arguments}: exit code {process.returncode}")
    processor = usage.ru_utime + usage.ru_stime
    return Cost(processor, seconds, usage.ru_maxrss / 2**20, lines[-1] if lines else "")


def command(*arguments: str) -> int:
    """Run a command of partlabel, and print how often it went over all training images."""
    from partlabel.cli import main
    from partlabel.training.whole_set import WholeSet

    passes = {"gradient": 0, "forward": 0}
    over_parts = WholeSet.__iter__

    def count(self: WholeSet) -> Any:
        passes["gradient" if torch.is_grad_enabled() else "forward"] += 1
        return over_parts(self)

    WholeSet.__iter__ = count  # type: ignore[method-assign]
    code = main(list(arguments))
    print(json.dumps(passes), flush=True)
    return code


def bare(folder: str, classes: str, rows: str, gradient: str) -> int:
    """The matrix products alone, over blocks of rows; prints the processor time."""
    vectors = np.load(Path(folder) / "x.npy", mmap_mode="r")
    weights, total = torch.randn(int(classes), FEATURES), torch.zeros(int(classes), FEATURES)
    size = max((1 << 22) // max(int(classes), FEATURES), 1)
    started = time.process_time()
    for start in range(0, int(rows), size):
        part = torch.from_numpy(vectors[start : min(start + size, int(rows))].astype(np.float32))
        logits = part @ weights.T
        if gradient == "True":
            total += logits.T @ part
    print(time.process_time() - started)
    return 0


def bare_seconds(folder: Path, classes: int, rows: int, threads: int, *, gradient: bool) -> float:
    """Processor time of the matrix products of one pass over some rows."""
    return float(measured("bare", folder, classes, rows, gradient, threads=threads).last_line)


def show(name: str, cost: Cost, products: float) -> None:
    """Print the time and the memory of a command."""
    ratio = cost.processor / products
    text = f"{cost.processor:.0f} s, {ratio:.2f} x {products:.0f} s"
    print_result(f"{name}: processor time", text, f"<= {RATIO} x the products", ratio <= RATIO)
    peak = f"{cost.gibibytes:.2f} GiB"
    print_result("  peak of resident memory", peak, f"< {GIB} GiB", cost.gibibytes < GIB)


def measure(folder: Path, images: int, classes: int, threads: int) -> None:
    """Train, evaluate and complete."""
    print(f"{images:,} embeddings x {FEATURES}, {classes:,} classes, {KNOWN:.0%} known", flush=True)
    make_data(folder, images, classes)
    labels, features, run = folder / "y.arrow", folder / "x.npy", folder / "run"
    given = ["--features", str(features)]
    cost = measured("command", "train", labels, *given, *TRAINING, "--out", run, threads=threads)
    passes, rows = json.loads(cost.last_line), round(0.8 * images)
    both = bare_seconds(folder, classes, rows, threads, gradient=True)
    forward = bare_seconds(folder, classes, images, threads, gradient=False)
    validation = (images - rows) / images * 2 * forward  # after the epoch, and at the end
    one = rows / images * forward
    products = passes["gradient"] * both + passes["forward"] * one + validation
    show(f"train ({passes['gradient']} gradients)", cost, products)
    cost = measured("command", "evaluate", run, labels, *given, threads=threads)
    show("evaluate", cost, forward)
    out = folder / "done.parquet"
    cost = measured("command", "complete", run, *given, "-o", out, threads=threads)
    show("complete (two passes)", cost, 2 * forward)
    print(f"      {lines_of(out):,} rows, {out.stat().st_size / 1e9:.2f} GB", flush=True)


def lines_of(path: Path) -> int:
    """The number of rows of a Parquet file."""
    from pyarrow import parquet

    return int(parquet.read_metadata(path).num_rows)


def run(sizes: tuple[tuple[int, int], ...] = SIZES, threads: int = 1) -> None:
    """Measure each size in a temporary folder."""
    for images, classes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), images, classes, threads)


def main() -> None:
    """Measure one size."""
    parser = argparse.ArgumentParser(description="Memory and time on very many embeddings.")
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    print(machine())
    run(((args.images, args.classes),), args.threads)


if __name__ == "__main__":
    main()
