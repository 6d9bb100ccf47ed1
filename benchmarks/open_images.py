"""Time to read 10,000,000 rows: an Open Images CSV, compared with ``csv.DictReader``, and tags."""

import csv
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.report import peak, print_result, processor_time, timed
from partlabel import read_labels

ROWS, IMAGES, CLASSES = 10_000_000, 1_500_000, 5_000


def _write(path: Path) -> None:
    rng = np.random.default_rng(0)
    image = np.sort(rng.integers(0, IMAGES, ROWS))
    position = np.arange(ROWS) - np.searchsorted(image, image)  # among the rows of the same image
    label = (image * 7919 + position * 1009) % CLASSES
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


def _write_tags(open_images: Path, path: Path) -> None:
    """The same images and labels as rows of tags."""
    with open_images.open() as source, path.open("w") as target:
        target.write("image,tag\n")
        next(source)
        for line in source:
            image, _, label, _ = line.split(",")
            target.write(f"{image},{label}\n")


def _with_csv(path: Path) -> int:
    with path.open(newline="") as stream:
        return sum(1 for _ in csv.DictReader(stream))


def run() -> None:
    """Read the file with both."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        _write(path)
        seconds, table = timed(lambda: read_labels(path), repeat=2)
        csv_seconds, rows = timed(lambda: _with_csv(path))
        assert rows == ROWS
        assert len(table.cells.values) == ROWS
        size = path.stat().st_size / 1e6
        print_result(
            f"read_labels of an Open Images CSV, 10M rows, {size:.0f} MB",
            f"{seconds:.1f} s",
            "none",
            True,
        )
        print_result("  csv.DictReader of the same file", f"{csv_seconds:.1f} s", "none", True)
        print_result(
            "  ratio: csv.DictReader / read_labels",
            f"{csv_seconds / seconds:.1f} x",
            ">= 5 x",
            csv_seconds / seconds >= 5,
        )
        tags = Path(folder) / "tags.csv"
        _write_tags(path, tags)
        tag_seconds, table = timed(lambda: read_labels(tags, unlisted="unknown"), repeat=2)
        assert len(table.cells.values) == ROWS
        print_result(
            "  read_labels of the same labels as tags (image,tag)",
            f"{tag_seconds:.1f} s",
            f"{seconds:.1f} s",
            True,
        )
        # in turns, so that a busy moment of the machine does not meet one of the two only
        rounds = [
            (
                processor_time(lambda: read_labels(path)),
                processor_time(lambda: read_labels(tags, unlisted="unknown")),
            )
            for _ in range(3)
        ]
        of_rows, of_tags = (sorted(seconds) for seconds in zip(*rounds, strict=True))
        print_result(
            "  the same in processor time, median of three rounds in turns",
            f"{of_tags[1]:.1f} s",
            f"<= {of_rows[1]:.1f} s",
            of_tags[1] <= of_rows[1],
        )
        print_result("  peak memory of the process", f"{peak():.0f} MB", "none", True)
