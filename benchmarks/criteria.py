"""Which criterion orders models best if no label is known to be absent.

    partlabel embed voc/images -o voc.npz
    python -m benchmarks.criteria voc=voc/labels.csv,voc.npz coco=coco/labels.csv,coco.npz

The label files have a split "train" with everything known. One positive per image is kept, at
random or the most salient one. Linear heads with several methods and weight decays are trained on
two thirds of these images. Criteria see the kept positives of the rest, the truth all labels of it.
The most salient positive is the largest object of generated images. Other data have no boxes: there
it is the one with the highest score by a model that was trained on all labels of the other images.
"""

import argparse
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from benchmarks.report import machine
from partlabel import read_labels
from partlabel.labels import LabelTable, scenes, simulate
from partlabel.metrics import evaluate
from partlabel.metrics.positive_ranking import positive_auc
from partlabel.models.features.embeddings import ArrayVectors
from partlabel.models.heads import Linear
from partlabel.output.bench.sheets import Sheet, markdown
from partlabel.training.arguments import make_settings
from partlabel.training.embed import embed_images
from partlabel.training.in_memory import fit_vectors
from partlabel.training.settings import Execution

Floats = NDArray[np.float64]
Criterion = Callable[[Floats, NDArray[np.int8]], float]
Judged = dict[str, tuple[float, float]]

METHODS: tuple[dict[str, Any], ...] = (
    {"method": "em", "options": {"alpha": 0.1}},
    {"method": "em", "options": {"alpha": 0.01}},
    {"method": "an"},
    {"method": "ls"},
    {"method": "n-ls"},
    {"method": "asl"},
    {"method": "dw"},
)
DECAYS = (1e-4, 3e-4, 1e-3, 3e-3)
IMAGES = 3000  # of a data set, at most


def mean_auc(scores: Floats, labels: NDArray[np.int8]) -> float:
    """The mean over classes of the AUC of known positives against all other images."""
    return float(np.nanmean(positive_auc(scores, labels)))


def pooled_auc(scores: Floats, labels: NDArray[np.int8]) -> float:
    """The AUC of known positives, each weighing the same, so that frequent classes weigh more."""
    numbers = (labels > 0).sum(axis=0)
    figures = positive_auc(scores, labels)
    return float(np.average(figures[numbers > 0], weights=numbers[numbers > 0]))


def assumed_precision(scores: Floats, labels: NDArray[np.int8]) -> float:
    """The mAP if all unknown labels were absent."""
    return evaluate(scores, np.where(labels > 0, 1, -1))["mAP"]


def lee_liu(scores: Floats, labels: NDArray[np.int8]) -> float:
    """The mean over classes of recall squared by the share of predicted images, at the best cut."""
    figures = []
    for column in range(labels.shape[1]):
        order = np.argsort(-scores[:, column], kind="stable")
        hits = np.cumsum(labels[order, column] > 0)
        if hits[-1]:
            recall = hits / hits[-1]
            figures.append(float(np.max(recall**2 / (np.arange(1, len(hits) + 1) / len(hits)))))
    return float(np.mean(figures))


def image_rank(scores: Floats, labels: NDArray[np.int8]) -> float:
    """The mean over images of the share of other classes that a known positive is above."""
    rows, columns = np.nonzero(labels > 0)
    own = scores[rows, columns]
    return float((scores[rows] < own[:, None]).sum(axis=1).mean() / (labels.shape[1] - 1))


def both_ways(scores: Floats, labels: NDArray[np.int8]) -> float:
    """The mean of two shares of pairs: among the images of a class, and the classes of an image."""
    return (pooled_auc(scores, labels) + image_rank(scores, labels)) / 2


def precision_and_rank(scores: Floats, labels: NDArray[np.int8]) -> float:
    """The mean of the mAP, if all unknown labels were absent, and the rank within the image."""
    return (assumed_precision(scores, labels) + image_rank(scores, labels)) / 2


CRITERIA: dict[str, Criterion] = {
    "AUC, mean over classes": mean_auc,
    "AUC, mean over positives": pooled_auc,
    "mAP, unknown as absent": assumed_precision,
    "recall squared / share": lee_liu,
    "rank within the image": image_rank,
    "AUC over positives, and rank": both_ways,
    "mAP, unknown as absent, and rank": precision_and_rank,
}


def fit(vectors: NDArray[np.float32], labels: LabelTable, **settings: Any) -> Floats:
    """The logits [n, C] of all vectors, by a head that was trained on the first ones."""
    chosen = make_settings(
        **{"backbone": "none", "frozen": "all", "optimizer": "lbfgs", "epochs": 6, "val": 0.0}
        | {"keep": "last"}
        | settings
    )
    first = ArrayVectors(vectors[: len(labels)])
    model = fit_vectors(first, vectors.shape[1], labels, chosen)
    assert isinstance(model.head, Linear)
    layer = model.head.classifier
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    return np.asarray(vectors @ weight.T + bias, dtype=np.float64)


def most_salient(truth: LabelTable, prominence: Floats) -> LabelTable:
    """The positive of each image with the highest prominence [n, C]."""
    values = truth.dense()
    ranked = np.where(values > 0, prominence, -np.inf)
    kept = np.zeros_like(values)
    rows = np.flatnonzero((values > 0).any(axis=1))
    kept[rows, ranked[rows].argmax(axis=1)] = 1
    return LabelTable(list(truth.ids), list(truth.classes), kept)


def judge(vectors: NDArray[np.float32], truth: LabelTable, known: LabelTable) -> Judged:
    """For each criterion, the rank correlation with the truth, and the points its choice loses."""
    train = 2 * len(truth) // 3
    held_out, values = np.arange(train, len(truth)), truth.dense()
    seen = known.dense()[held_out]
    true: list[float] = []
    found: dict[str, list[float]] = {name: [] for name in CRITERIA}
    labels = known.subset(np.arange(train))
    for method, decay in itertools.product(METHODS, DECAYS):
        scores = fit(vectors, labels, **method, weight_decay=decay)[held_out]
        true.append(100 * evaluate(scores, values[held_out])["mAP"])
        for name, criterion in CRITERIA.items():
            found[name].append(criterion(scores, seen))
    best = max(true)
    result = {}
    for name, figures in found.items():
        lost = best - true[int(np.argmax(figures))]
        result[name] = (float(kendalltau(figures, true).statistic), lost)
    return result


def centred(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors with mean 0, on which L-BFGS converges faster."""
    return np.asarray(vectors - vectors.mean(axis=0), dtype=np.float32)


def real(labels: Path, features: Path, seed: int) -> tuple[NDArray[np.float32], LabelTable, Floats]:
    """Vectors, all labels, and the prominence of classes, of a sample of a data set."""
    table = read_labels(labels)
    table = table.subset(np.flatnonzero(table.in_split("train")))
    stored = np.load(features)
    place = {name: row for row, name in enumerate(stored["ids"].tolist())}
    order = np.random.default_rng(seed).permutation(len(table))
    sample, others = order[:IMAGES], order[IMAGES:]
    vectors = centred(stored["features"][[place[name] for name in table.ids]])
    other = table.subset(others)
    both = np.concatenate([vectors[others], vectors[sample]])
    prominence = fit(both, other, method="bce", weight_decay=1e-3)[len(others) :]
    return vectors[sample], table.subset(sample), prominence


def generated(seed: int) -> tuple[NDArray[np.float32], LabelTable, Floats]:
    """Vectors, all labels, and the size of the largest object of each class, of scenes."""
    with tempfile.TemporaryDirectory() as folder:
        made = scenes.make(IMAGES, seed=seed)
        home = Path(folder) / "scenes"
        scenes.write(home, IMAGES, scenes.World(20, 64, seed))
        files = {name: home / "images" / name for name in made.labels.ids}
        settings = make_settings(method="bce", frozen="all", size=64)
        embedded = embed_images(files, settings, Execution(cache=Path(folder) / "cache"))
    prominence = np.zeros(made.labels.shape)
    for row, boxes in enumerate(made.boxes):
        for box in boxes:
            size = (box.right - box.left) * (box.bottom - box.top)
            prominence[row, box.label] = max(prominence[row, box.label], size)
    return centred(embedded.vectors), made.labels, prominence


def main() -> None:
    """Print a table: rank correlation with the true mAP, and points lost by the choice."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="*", help="name=labels.csv,features.npz")
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    print(machine(), flush=True)
    columns: dict[str, list[Judged]] = {}
    for text, seed in itertools.product([*arguments.data, "scenes"], range(arguments.seeds)):
        name, _, files = text.partition("=")
        labels, _, features = files.partition(",")
        data = real(Path(labels), Path(features), seed) if files else generated(seed)
        vectors, truth, prominence = data
        draws = {
            "random": simulate.single_positive(truth, seed=seed),
            "salient": most_salient(truth, prominence),
        }
        for kind, known in draws.items():
            columns.setdefault(f"{name}, {kind}", []).append(judge(vectors, truth, known))
            print(name, kind, seed, columns[f"{name}, {kind}"][-1], flush=True)
    rows = [[name, *(_cell(judged, name) for judged in columns.values())] for name in CRITERIA]
    print(markdown(Sheet(["criterion", *columns], rows)))


def _cell(judged: list[Judged], name: str) -> str:
    correlation, lost = np.mean([one[name] for one in judged], axis=0)
    return f"{correlation:.2f} / {lost:.2f}"


if __name__ == "__main__":
    main()
