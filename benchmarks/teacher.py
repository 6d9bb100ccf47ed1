"""What a teacher adds: a model trained on COCO scores VOC, of which 10% of the labels are known.

    partlabel embed coco/images -o coco.npz
    partlabel embed voc/images -o voc.npz
    python -m benchmarks.teacher coco/labels.csv coco.npz voc/labels.csv voc.npz

The teacher is trained on all labels of COCO, and knows some of the classes of VOC. Three trainings
per seed are compared on the test images of VOC: without a teacher, with its scores, and with its
scores shuffled among the images, which makes them useless.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from benchmarks.report import machine
from partlabel import evaluate, predict, read_labels, train
from partlabel.labels import LabelTable, simulate
from partlabel.output.bench.sheets import Sheet, markdown

SAME = {"airplane": "aeroplane", "motorcycle": "motorbike"}  # names of COCO, and those of VOC
SETTINGS: dict[str, Any] = {"method": "bce", "optimizer": "lbfgs"}


def write_scores(path: Path, table: LabelTable, shared: list[str], seed: int | None = None) -> None:
    """Write the scores of classes that both data sets have; shuffled among images with a seed."""
    scores = table.cells.scores_or_nan().reshape(table.shape)
    if seed is not None:
        scores = np.random.default_rng(seed).permutation(scores)
    names = [SAME.get(name, name) for name in table.classes]
    columns = [number for number, name in enumerate(names) if name in shared]
    ids = np.repeat(list(table.ids), len(columns))
    classes = np.tile([names[column] for column in columns], len(table))
    values = scores[:, columns].reshape(-1)
    pyarrow.parquet.write_table(pa.table({"image": ids, "class": classes, "score": values}), path)


def average_precisions(
    labels: LabelTable, features: Path, truth: LabelTable, out: Path, **more: Any
) -> NDArray[np.float64]:
    """[C] the average precision of each class on test images, in percent."""
    run = train(labels, out=out, features=features, reserve=0, **SETTINGS, **more)
    result = evaluate(run, truth, split="test")
    return 100 * np.asarray(result.per_class["AP"], dtype=np.float64)


def main() -> None:
    """Train the teacher, compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("coco_labels", "coco_features", "voc_labels", "voc_features"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--weight-decay", type=float, default=1e-3)
    parser.add_argument("--known", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    truth = read_labels(arguments.voc_labels)
    splits = np.array(list(truth.splits or []))
    truth = truth.with_splits(np.where(splits == "train", "train", "test").tolist())
    coco = read_labels(arguments.coco_labels)
    shared = [name for name in truth.classes if name in {SAME.get(n, n) for n in coco.classes}]
    is_shared = np.isin(list(truth.classes), shared)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        teacher = train(
            coco,
            out=folder / "teacher",
            features=arguments.coco_features,
            weight_decay=1e-3,
            **SETTINGS,
        )
        scores = predict(teacher, features=arguments.voc_features, threshold=0.5)
        write_scores(folder / "scores.parquet", scores, shared)
        results: dict[str, list[NDArray[np.float64]]] = {}
        for seed in range(arguments.seeds):
            labels = simulate.hide(truth, "partial", arguments.known, seed, "train", 0.2)
            labels = labels.subset(np.flatnonzero(np.array(list(labels.splits or [])) != "test"))
            write_scores(folder / f"shuffled{seed}.parquet", scores, shared, seed)
            for name, files in {
                "no teacher": [],
                "teacher": [folder / "scores.parquet"],
                "shuffled scores": [folder / f"shuffled{seed}.parquet"],
            }.items():
                out = folder / f"{name}-{seed}"
                precisions = average_precisions(
                    labels,
                    arguments.voc_features,
                    truth,
                    out,
                    teachers=files,
                    seed=seed,
                    weight_decay=arguments.weight_decay,
                )
                results.setdefault(name, []).append(precisions)
    for name, runs in results.items():
        parts = [[ap[part].mean() for ap in runs] for part in (is_shared, ~is_shared, slice(None))]
        rows.append([name, *(f"{np.mean(part):.2f} ± {np.std(part):.2f}" for part in parts)])
    header = [
        "training", f"mAP of {len(shared)} shared classes",
        f"mAP of {int((~is_shared).sum())} others", "mAP",
    ]  # fmt: skip
    print(machine())
    print(markdown(Sheet(header, rows)))


if __name__ == "__main__":
    main()
