"""Methods with one feature vector per class: sst, hst and sarb."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from conformance import MethodConformance
from partlabel.base.errors import InputError
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.class_features import ClassFeatures
from partlabel.learning.method import Method
from partlabel.learning.methods import METHODS, Task
from partlabel.learning.methods.sst import StructuredTransfer
from partlabel.models import Classifier
from partlabel.models.heads import Decoupled
from test_methods_graphs import (
    Array,
    classified_by_hand,
    decoupled_by_hand,
    linear,
    numbers,
    sigmoid,
    table_of,
)

SMALL: dict[str, Any] = {"start": 1, "channels": 8, "joint": 6}
LABELS = np.array([[1, 0, 1, 0], [1, 1, 0, -1], [0, 0, 0, 0], [1, 0, -1, 0], [0, 1, 0, 1]])


class TestStructuredTransfer(MethodConformance):
    name = "sst"
    options = SMALL | {"threshold": 0.5, "lowest": 0.3}


def set_up(method: Method, labels: Any = LABELS) -> tuple[Classifier, Batch, Array]:
    """A model in double precision, a batch, and the maps of the batch."""
    torch.manual_seed(0)
    table = table_of(labels)
    method.prepare(Task(table, table, 9))
    head = method.head(5, labels.shape[1])
    assert isinstance(head, Decoupled)
    model = Classifier(torch.nn.Identity(), head.double(), list(table.classes))  # type: ignore[arg-type]
    method.begin_stage(0, model)  # type: ignore[operator]
    maps = torch.randn(len(labels), 5, 2, 2, dtype=torch.float64)
    batch = Batch(torch.arange(len(labels)), torch.from_numpy(labels).double(), {"weak": maps})
    return model, batch, maps.numpy()


def bce(logits: Array, labels: NDArray[Any]) -> float:
    """Cross-entropy of known labels, divided by their number."""
    return float(np.log1p(np.exp(-(labels * logits)[labels != 0])).mean())


def cosine(one: Array, other: Array) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def contrast_by_hand(features: Array, labels: NDArray[Any]) -> float:
    same, other = [], []
    for i, j in itertools.combinations(range(len(labels)), 2):
        for c in range(labels.shape[1]):
            if labels[i, c] and labels[j, c]:
                cos = cosine(features[i, c], features[j, c])
                if labels[i, c] == labels[j, c] == 1:
                    same.append(1 - cos)
                else:
                    other.append(1 + cos)
    return float(np.mean(same) + np.mean(other))


def pairs_by_hand(n: dict[str, Array], features: Array) -> dict[tuple[int, int], Array]:
    """The probability [B] of each pair of classes, both ways round."""
    result = {}
    pairs = itertools.combinations(range(features.shape[1]), 2)
    for number, (a, b) in enumerate(pairs):
        joined = linear(n, "pair_scores.of_first", features[:, a])
        joined = np.maximum(joined + linear(n, "pair_scores.of_second", features[:, b]), 0)
        logit = joined @ n["pair_scores.weight"][number] + n["pair_scores.bias"][number]
        result[a, b] = result[b, a] = sigmoid(logit)
    return result


def cooccurrence_by_hand(pairs: dict[tuple[int, int], Array], labels: NDArray[Any]) -> float:
    costs = []
    for a, b in itertools.combinations(range(labels.shape[1]), 2):
        for i, p in enumerate(pairs[a, b]):
            if labels[i, a] == labels[i, b] == 1:
                costs.append((1 - p) * -np.log(p))
            else:
                q = max(p - 0.05, 0.0)
                costs.append(q**2 * -np.log(1 - q))
    return float(np.mean(costs))


def within_by_hand(pairs: dict[tuple[int, int], Array], labels: NDArray[Any]) -> Array:
    scores = np.zeros(labels.shape)
    for i, c in np.ndindex(*labels.shape):
        others = [other for other in range(labels.shape[1]) if other != c and labels[i, other] == 1]
        scores[i, c] = np.mean([pairs[c, other][i] for other in others]) if others else 0
    return scores


def across_by_hand(features: Array, labels: NDArray[Any]) -> Array:
    """Mean cosines with the feature vectors of the batch that are known to be present."""
    scores = np.zeros(labels.shape)
    for i, c in np.ndindex(*labels.shape):
        present = np.flatnonzero(labels[:, c] == 1)
        if len(present):
            scores[i, c] = np.mean([cosine(features[i, c], features[j, c]) for j in present])
    return scores


@pytest.mark.parametrize("transfers", [False, True])
def test_sst_by_hand(transfers: bool) -> None:
    method = StructuredTransfer(**SMALL, threshold=0.55, lowest=0.4, fall=0.1)
    model, batch, maps = set_up(method)
    n = numbers(model.head)
    features, _ = decoupled_by_hand(n, maps)
    logits, pairs = classified_by_hand(n, features, 3), pairs_by_hand(n, features)
    expected = bce(logits, LABELS) + 10 * cooccurrence_by_hand(pairs, LABELS)
    expected += 0.05 * contrast_by_hand(features, LABELS)
    figures = method.before_epoch(2 if transfers else 0, lambda forward=None: iter(()))
    if transfers:
        assert figures["threshold"] == pytest.approx(0.45)
        given = []
        for scores in (within_by_hand(pairs, LABELS), across_by_hand(features, LABELS)):
            labels = np.where((LABELS == 0) & (scores >= 0.45), 1, LABELS)
            given.append((labels != LABELS).sum() / len(LABELS))
            expected += bce(logits, labels)
        assert min(given) > 0
    parts = method.loss(model, batch)
    assert float(parts["loss"].detach()) == pytest.approx(expected, rel=1e-6)
    if transfers:
        assert [float(parts["within"]), float(parts["across"])] == pytest.approx(given)


def test_the_threshold_falls() -> None:
    method = StructuredTransfer()
    thresholds = []
    for epoch in range(20):
        figures = method.before_epoch(epoch, lambda forward=None: iter(()))
        thresholds.append(figures.get("threshold"))
    assert thresholds[:5] == [None] * 5
    assert thresholds[5:8] == pytest.approx([0.95, 0.925, 0.9])
    assert thresholds[13:] == pytest.approx([0.75] * 7)


@pytest.mark.parametrize("name", ["sst"])
def test_an_error_if_nothing_would_be_transferred(name: str) -> None:
    table = table_of(LABELS)
    with pytest.raises(InputError, match="start = 5: no unknown label would"):
        METHODS[name]().prepare(Task(table, table, 5))


def test_recent_features_of_classes() -> None:
    """A ring for each class; a batch may have more than it holds."""
    stored, kept = ClassFeatures(2, 3, 1), [[], []]  # type: ignore[var-annotated]
    rng = np.random.default_rng(0)
    for number in range(6):
        present = rng.random((4 if number != 3 else 9, 2)) < 0.5
        features = rng.normal(size=(*present.shape, 1)).astype(np.float32)
        stored.push(torch.from_numpy(features), torch.from_numpy(present))
        for c in range(2):
            kept[c] = (kept[c] + [float(x) for x in features[present[:, c], c, 0]])[-3:]
            assert sorted(stored.vectors[c, : len(kept[c]), 0].tolist()) == sorted(kept[c])
            assert int(stored.number[c]) == len(kept[c])
    signs = [[np.sign(np.mean(np.sign(values)))] for values in kept]
    assert torch.sign(stored.centres()).tolist() == signs


def test_labels_across_images_need_a_present_one() -> None:
    scores = losses.scores_across_images(torch.randn(2, 3, 4), ClassFeatures(3, 2, 4).centres())
    assert not scores.any()
