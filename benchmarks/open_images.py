"""Reading an Open Images CSV of 10,000,000 rows, against ``csv.DictReader`` over the same file."""

import csv
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.report import peak, tell, timed
from partlabel import read_labels

ROWS, IMAGES, CLASSES = 10_000_000, 1_500_000, 5_000


def _write(path: Path) -> None:
    rng = np.random.default_rng(0)
    image = np.sort(rng.integers(0, IMAGES, ROWS))
    place = np.arange(ROWS) - np.searchsorted(image, image)  # the how manieth of its image
    label = (image * 7919 + place * 1009) % CLASSES
    value = rng.integers(0, 2, ROWS)
    with path.open("w") as stream:
        stream.write("ImageID,Source,LabelName,Confidence\n")
        for start in range(0, ROWS, 1_000_000):
            part = slice(start, start + 1_000_000)
            stream.writelines(
                f"{i * 2654435761 % 2**60:016x},verification,/m/{c:05x},{v}\n"
                for i, c, v in zip(
                    image[part].tolist(), label[part].tolist(), value[part].tolist(), strict=True
                )
            )


def _with_csv(path: Path) -> int:
    with path.open(newline="") as stream:
        return sum(1 for _ in csv.DictReader(stream))


def run() -> None:
    """Read the file both ways."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        _write(path)
        ours, table = timed(lambda: read_labels(path), repeat=2)
        theirs, rows = timed(lambda: _with_csv(path))
        assert rows == ROWS
        assert len(table.cells.values) == ROWS
        size = path.stat().st_size / 1e6
        tell(
            f"Open Images CSV, 10M rows, {size:.0f} MB: read_labels", f"{ours:.1f} s", "none", True
        )
        tell("  csv.DictReader over the same file", f"{theirs:.1f} s", "none", True)
        tell("  ratio", f"{theirs / ours:.1f} x", ">= 5 x", theirs / ours >= 5)
        tell("  peak memory of the process", f"{peak():.0f} MB", "none", True)
