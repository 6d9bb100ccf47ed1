"""Methods with one feature vector per class: sst, hst and sarb."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import partlabel
from by_hand import (
    Array,
    across_by_hand,
    bce,
    classified_by_hand,
    contrast_by_hand,
    cooccurrence_by_hand,
    decoupled_by_hand,
    numbers,
    pairs_by_hand,
    sigmoid,
    soft,
    within_by_hand,
)
from conformance import MethodConformance
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.class_features import ClassFeatures
from partlabel.learning.method import Method, Predict
from partlabel.learning.methods import METHODS, Task
from partlabel.learning.methods.hst import HeterogeneousTransfer
from partlabel.learning.methods.sarb import RepresentationBlending
from partlabel.learning.methods.sst import StructuredTransfer
from partlabel.models import Classifier
from partlabel.models.heads import Decoupled
from test_methods_graphs import table_of

SMALL: dict[str, Any] = {"start": 1, "channels": 8, "joint": 6}
LABELS = np.array([[1, 0, 1, 0], [1, 1, 0, -1], [0, 0, 0, 0], [1, 0, -1, 0], [0, 1, 0, 1]])


class TestStructuredTransfer(MethodConformance):
    name = "sst"
    options = SMALL | {"threshold": 0.5, "lowest": 0.3}


class TestHeterogeneousTransfer(MethodConformance):
    name = "hst"
    options = SMALL | {"prototypes": 2}


class TestRepresentationBlending(MethodConformance):
    name = "sarb"
    options = SMALL | {"prototypes": 2}


def set_up(method: Method, labels: Any = LABELS) -> tuple[Classifier, Batch, Array]:
    """A model in double precision, a batch, and the maps of the batch."""
    torch.manual_seed(0)
    table = table_of(labels)
    method.prepare(Task(table, table, 9))
    head = method.head(5, labels.shape[1])
    assert isinstance(head, Decoupled)
    model = Classifier(torch.nn.Identity(), head.double(), list(table.classes))  # type: ignore[arg-type]
    method.begin_stage(0, model)  # type: ignore[operator]
    model.eval()  # so that features do not depend on the other images
    maps = torch.randn(len(labels), 5, 2, 2, dtype=torch.float64)
    batch = Batch(torch.arange(len(labels)), torch.from_numpy(labels).double(), {"weak": maps})
    return model, batch, maps.numpy()


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


@pytest.mark.parametrize("name", ["sst", "hst"])
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


def predicting(model: Classifier, batch: Batch) -> Predict:
    """Goes over the images of a batch."""

    def predict(forward: Any = None) -> Any:
        with torch.no_grad():
            yield np.arange(3), forward(model, batch.views["weak"][:3])
            yield np.arange(3, len(batch)), forward(model, batch.views["weak"][3:])

    return predict


def test_hst_by_hand() -> None:
    """With room for all, prototypes are the feature vectors of present labels themselves."""
    method = HeterogeneousTransfer(**SMALL, learn=0.3, prototype_contrast=0.2)
    model, batch, maps = set_up(method)
    method.before_epoch(1, predicting(model, batch))
    with torch.no_grad():
        method.thresholds.copy_(torch.tensor([0.5, 0.25]))
    n = numbers(model.head)
    features, _ = decoupled_by_hand(n, maps)
    logits, pairs = classified_by_hand(n, features, 3), pairs_by_hand(n, features)
    within, across = within_by_hand(pairs, LABELS), across_by_hand(features, LABELS)
    present = LABELS == 1
    others = present.sum(axis=1, keepdims=True) - present
    expected = bce(logits, LABELS) + 10 * cooccurrence_by_hand(pairs, LABELS)
    expected += 0.05 * contrast_by_hand(features, LABELS)
    expected += 0.3 * bce((within - 0.5) / 0.1, np.where(others > 0, LABELS, 0))
    expected += 0.3 * bce((across - 0.25) / 0.1, LABELS)
    expected += 0.2 * ((1 - across[LABELS > 0]).mean() + (1 + across[LABELS < 0]).mean())
    for scores, threshold in ((within, 0.5), (across, 0.25)):
        labels = np.where((LABELS == 0) & (scores >= threshold), 1, LABELS)
        assert (labels != LABELS).any()
        expected += bce(logits, labels)
    loss = method.loss(model, batch)["loss"]
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-6)
    (threshold_gradient,) = torch.autograd.grad(loss, [method.thresholds])
    assert bool((threshold_gradient != 0).all())


def test_thresholds_separate_known_labels() -> None:
    """The threshold ends where known labels are as often present as absent."""
    method = HeterogeneousTransfer(**SMALL)
    method.prepare(Task(table_of(LABELS), table_of(LABELS), 9))
    method.stored.pushed.fill_(1)
    scores = torch.tensor([[0.9, 0.3, 0.2, 0.1], [0.8, 0.7, 0.4, 0.0]])
    labels = torch.tensor([[1.0, -1, -1, -1], [1, 1, -1, -1]])
    optimizer = torch.optim.SGD([method.thresholds], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        method.further_cost((scores, scores), labels, {}).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert 0.4 < float(method.thresholds[1].detach()) < 0.7


def test_prototypes_are_centres_of_clusters() -> None:
    rng = np.random.default_rng(0)
    true = np.array([[0, 0], [9, 0], [0, 9]])
    many = (true[rng.integers(0, 3, 200)] + rng.normal(0, 0.1, (200, 2))).astype(np.float32)
    few, none = many[:2], many[:0]
    stored = ClassFeatures(3, 3, 2)
    stored.cluster([many, few, none])
    assert stored.number.tolist() == [3, 2, 0]
    found = stored.vectors[0].numpy()
    for centre in true:
        assert np.linalg.norm(found - centre, axis=1).min() < 0.1
    assert torch.equal(stored.vectors[1, :2], torch.from_numpy(few))
    assert not stored.centres()[2].any()
    again = ClassFeatures(3, 3, 2)
    again.cluster([many, few, none])
    assert torch.equal(stored.vectors, again.vectors)
    stored.cluster([np.ones((9, 2), dtype=np.float32), few, few])  # all the same
    assert torch.equal(stored.vectors[0], torch.ones(3, 2))
    stored.cluster([none, none, few])  # nothing is left of what was there before
    assert not stored.vectors[:2].any()


def test_sarb_by_hand() -> None:
    method = RepresentationBlending(**SMALL, prototypes=1)
    model, batch, maps = set_up(method)
    figures = method.before_epoch(1, predicting(model, batch))
    assert figures == {"alpha": 0.5, "beta": 0.5}
    with torch.no_grad():
        method.own.copy_(torch.tensor([1.0, -2.0]))
    n = numbers(model.head)
    features, _ = decoupled_by_hand(n, maps)
    alpha, beta = sigmoid(np.array([1.0, -2.0]))
    expected = bce(classified_by_hand(n, features, 3), LABELS)
    expected += 0.05 * contrast_by_hand(features, LABELS)
    blended, targets, counted = features.copy(), (LABELS > 0).astype(float), LABELS != 0
    for i, c in np.ndindex(*LABELS.shape):
        other = len(LABELS) - 1 - i
        if LABELS[i, c] == 0 and LABELS[other, c] == 1:
            blended[i, c] = alpha * features[i, c] + (1 - alpha) * features[other, c]
            targets[i, c], counted[i, c] = 1 - alpha, True
    assert counted.sum() > (LABELS != 0).sum()
    expected += soft(classified_by_hand(n, blended, 3), targets, counted)
    torch.manual_seed(5)  # the same draw
    chosen = losses.choose_unknown(batch.labels, torch.ones(4, dtype=torch.bool)).numpy()
    assert chosen.sum(axis=1).tolist() == [1, 1, 1, 1, 1]
    blended, targets, counted = features.copy(), (LABELS > 0).astype(float), LABELS != 0
    for i, c in zip(*np.nonzero(chosen), strict=True):
        prototype = features[LABELS[:, c] == 1, c].mean(axis=0)  # of one cluster
        blended[i, c] = beta * features[i, c] + (1 - beta) * prototype
        targets[i, c], counted[i, c] = 1 - beta, True
    expected += soft(classified_by_hand(n, blended, 3), targets, counted)
    torch.manual_seed(5)
    loss = method.loss(model, batch)["loss"]
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, [method.own])
    assert bool((gradient != 0).all())


def test_one_unknown_label_is_chosen_at_random() -> None:
    labels = torch.tensor([[0, 0, 0, 1], [1, -1, 1, -1], [1, 1, 1, 0]])
    available = torch.tensor([True, False, True, True])
    counts = sum(losses.choose_unknown(labels, available).int() for _ in range(200))
    assert isinstance(counts, torch.Tensor)
    assert 60 < int(counts[0, 0]) < 140
    assert counts.sum(dim=1).tolist() == [200, 0, 200]
    assert int(counts[0, 1]) == 0


def test_an_error_if_nothing_would_be_blended() -> None:
    table = table_of(LABELS)
    with pytest.raises(InputError, match="start = 5: no feature would be blended"):
        RepresentationBlending().prepare(Task(table, table, 5))


@pytest.mark.parametrize("name", ["ssgrl", "sst", "hst", "sarb"])
def test_one_vector_per_image_is_not_enough(name: str, tmp_path: Path) -> None:
    table = table_of(LABELS)
    np.savez(tmp_path / "f.npz", ids=list(table.ids), features=np.ones((len(table), 3)))
    with pytest.raises(InputError, match=f"the head of the method '{name}' looks at the places"):
        partlabel.train(table, features=tmp_path / "f.npz", out=tmp_path / "run", method=name)


@pytest.mark.filterwarnings(f"ignore::{PartlabelWarning.__module__}.PartlabelWarning")
def test_the_whole_interface(scene: Path, tmp_path: Path) -> None:
    """On cached maps: trained, measured, predicted, completed and reported."""
    settings = {**MethodConformance.tiny, "frozen": "all", "cache": tmp_path / "cache"}
    options = SMALL | {"prototypes": 2}
    run = partlabel.train(
        scene / "partial.csv",
        scene / "images",
        tmp_path / "run",
        method="hst",
        options=options,
        **settings,
    )
    known = partlabel.evaluate(run, scene / "labels.csv", split="test", cache=tmp_path / "cache")
    assert 0 <= known["mAP"] <= 1
    predicted = partlabel.predict(run, scene / "images", cache=tmp_path / "cache")
    assert predicted.shape == (40, 5)
    completed = partlabel.complete(run, cache=tmp_path / "cache")
    assert completed.table.shape == (40, 5)
    page = partlabel.report(run, truth=scene / "labels.csv", cache=tmp_path / "cache")
    assert Path(page).is_file()
