"""Accuracy against computing time of the packaged backbones, joined ones, and image sizes.

    python -m benchmarks.backbones voc/ coco18/ -o results

A folder holds ``labels.csv``, with the splits train and val, and ``images/``. Of the training
labels a share is hidden, a fifth of the training images keeps all labels for validation, and a
linear head is trained on frozen features by L-BFGS. The weight decay is chosen on the validation
labels of the first seed. The mAP is that of all labels of the split val.

The cost of a configuration is the CPU time of decoding images and computing their features, as a
multiple of that of lite0 at 224 pixels. Both are measured in turns, at the end of a call. Each line
of ``results.csv`` and ``costs.csv`` is written when it is known, and a second call goes on after
the last one. ``table.md`` has the means over seeds.
"""

import argparse
import csv
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import machine
from partlabel import evaluate, read_labels, train
from partlabel.base.files import atomic_file
from partlabel.images.folder import ImageFiles
from partlabel.images.pictures import Pictures
from partlabel.labels import simulate
from partlabel.models import make_backbone
from partlabel.models.features import cached_maps
from partlabel.output.bench.results import spread
from partlabel.output.bench.sheets import Sheet, markdown

LITE0, LITE1, LITE2 = (f"tf_efficientnet_lite{number}" for number in range(3))
CONFIGURATIONS = [
    (LITE0, 160),
    (LITE0, 192),
    (LITE0, 224),
    (LITE0, 260),
    (LITE0, 288),
    (LITE0, 320),
    (LITE1, 224),
    (LITE1, 240),
    (LITE1, 288),
    (LITE2, 224),
    (LITE2, 260),
    (LITE2, 320),
    (f"{LITE0}+{LITE1}", 224),
    (f"{LITE0}+{LITE2}", 224),
    (f"{LITE1}+{LITE2}", 224),
    (f"{LITE1}+{LITE2}", 260),
    (f"{LITE0}+{LITE1}+{LITE2}", 224),
    (f"{LITE0}+{LITE1}+{LITE2}", 260),
]
DECAYS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
FIELDS = ["data", "backbone", "size", "proportion", "seed", "weight_decay", "mAP"]
COSTS = ["backbone", "size", "cost"]
ROUNDS = 3

Row = dict[str, str]


@dataclass(frozen=True)
class Case:
    """What is measured: one training."""

    data: Path
    backbone: str
    size: int
    proportion: float
    seed: int

    def key(self) -> Row:
        """How it is named in the results."""
        values = {**vars(self), "data": self.data.resolve().name}
        return {name: str(value) for name, value in values.items()}


def cpu_seconds(data: Path, name: str, size: int, images: int) -> float:
    """CPU time to decode images and compute their pooled features, without a cache."""
    files = ImageFiles(data / "images")
    paths = [files.folder / image for image in files.names[:images]]
    backbone = make_backbone(name, "imagenet", "all", size)
    pictures = Pictures([path.name for path in paths], paths, size, 0, backbone.interpolation)
    with tempfile.TemporaryDirectory() as folder:
        start = _cpu_time()
        cached_maps(backbone, pictures, Path(folder), pooled=True)
        return _cpu_time() - start


def _cpu_time() -> float:
    """CPU seconds of this process and of processes that it started and that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def relative_cost(data: Path, name: str, size: int, images: int) -> float:
    """CPU time per image as a multiple of that of lite0 at 224 pixels, measured in turns."""
    ratios = [
        cpu_seconds(data, name, size, images) / cpu_seconds(data, LITE0, 224, images)
        for _ in range(ROUNDS)
    ]
    return float(np.median(ratios))


def measure(case: Case, decays: tuple[float, ...], cache: Path) -> tuple[float, float]:
    """The weight decay with the best validation mAP, and the mAP on the split val."""
    table, images = read_labels(case.data / "labels.csv"), case.data / "images"
    labels = simulate.hide(
        table, "partial", case.proportion, seed=case.seed, split="train", holdout=0.2
    )
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for number, decay in enumerate(decays):
            run = train(
                labels,
                images,
                Path(folder) / str(number),
                method="bce",
                backbone=case.backbone,
                size=case.size,
                frozen="all",
                optimizer="lbfgs",
                weight_decay=decay,
                reserve=0,
                seed=case.seed,
                cache=cache,
            )
            runs.append((run.record.best_val_mAP or 0.0, decay, run))
        _, decay, run = max(runs, key=lambda each: each[0])
        return decay, evaluate(run, table, images, split="val", cache=cache)["mAP"]


def measure_all(arguments: argparse.Namespace, results: Path) -> list[Row]:
    """All lines of the results, those of earlier calls first."""
    rows: list[Row] = list(csv.DictReader(results.open())) if results.is_file() else []
    cache = arguments.cache or arguments.out / "cache"
    decays: dict[tuple[Path, str, int, float], float] = {}
    for case in _cases(arguments):
        row = next((row for row in rows if case.key().items() <= row.items()), None)
        tried = case.data, case.backbone, case.size
        if row is None:
            chosen = decays.get((*tried, case.proportion))
            decay, score = measure(case, DECAYS if chosen is None else (chosen,), cache)
            figures = {"weight_decay": decay, "mAP": score}
            row = {**case.key(), **{name: str(value) for name, value in figures.items()}}
            rows.append(row)
            _write(results, FIELDS, rows)
            print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)
        decays[(*tried, case.proportion)] = float(row["weight_decay"])
    return rows


def _cases(arguments: argparse.Namespace) -> Iterator[Case]:
    for data in arguments.data:
        for backbone, size in CONFIGURATIONS:
            if arguments.only and f"{backbone}@{size}" not in arguments.only:
                continue
            for proportion in arguments.proportions:
                for seed in range(arguments.seeds):
                    yield Case(data, backbone, size, proportion, seed)


def measure_costs(arguments: argparse.Namespace, path: Path, rows: list[Row]) -> list[Row]:
    """The cost of each configuration in the results, on images of the first folder."""
    costs: list[Row] = list(csv.DictReader(path.open())) if path.is_file() else []
    for name, size in dict.fromkeys((row["backbone"], row["size"]) for row in rows):
        if not any((cost["backbone"], cost["size"]) == (name, size) for cost in costs):
            cost = relative_cost(arguments.data[0], name, int(size), arguments.timed)
            costs.append({"backbone": name, "size": size, "cost": str(cost)})
            _write(path, COSTS, costs)
    return costs


def _write(path: Path, fields: list[str], rows: list[Row]) -> None:
    with atomic_file(path) as stream:
        lines = [fields, *([row[field] for field in fields] for row in rows)]
        stream.write("".join(",".join(line) + "\n" for line in lines).encode())


def table_of(rows: list[Row], costs: list[Row]) -> str:
    """Means over seeds in Markdown, one line per configuration."""
    cost_of = {(row["backbone"], row["size"]): float(row["cost"]) for row in costs}
    columns = list(dict.fromkeys((row["data"], row["proportion"]) for row in rows))
    cells = []
    for name, size in dict.fromkeys((row["backbone"], row["size"]) for row in rows):
        own = [row for row in rows if (row["backbone"], row["size"]) == (name, size)]
        figures = [
            [100 * float(row["mAP"]) for row in own if (row["data"], row["proportion"]) == column]
            for column in columns
        ]
        cost = f"{cost_of[name, size]:.1f}"
        cells.append([name, size, cost, *map(_mean_and_deviation, figures)])
    shares = [f"{data}, {100 * float(share):g}% of labels" for data, share in columns]
    return markdown(Sheet(["backbone", "size", "cost", *shares], cells))


def _mean_and_deviation(values: list[float]) -> str:
    if not values:
        return ""
    mean, deviation = spread(values)
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} +- {deviation:.2f}"


def main() -> None:
    """Measure all configurations on the folders that are given."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, help="folder of cached features (default: OUT/cache)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--proportions", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--timed", type=int, default=128, help="number of images that are timed")
    parser.add_argument("--only", nargs="*", help="such as tf_efficientnet_lite0@224")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = measure_all(arguments, arguments.out / "results.csv")
    costs = measure_costs(arguments, arguments.out / "costs.csv", rows)
    text = f"{machine()}\n\n{table_of(rows, costs)}"
    with atomic_file(arguments.out / "table.md") as stream:
        stream.write(text.encode())
    print(text)


if __name__ == "__main__":
    main()
