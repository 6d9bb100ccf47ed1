"""Generated features and labels, ways in which labels are missing, and models of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel import LabelTable
from partlabel.labels import ABSENT, PRESENT
from partlabel.labels.cells import CHOSEN

PREVALENCES = (0.885, 0.5, 0.3, 0.2, 0.113, 0.06, 0.03, 0.015)
IMAGES, CLASSES, FEATURES = 1500, len(PREVALENCES), 16
Floats = NDArray[np.float64]
Learner = Callable[[Floats, NDArray[Any], Floats, Any], Floats]


class World(NamedTuple):
    """Features [n, d] and true labels [n, C] in {-1, 1}, also of as many other images like these.

    None of the others is labelled. They show what is right among images in general.
    """

    features: Floats
    truth: NDArray[np.int8]
    other_features: Floats
    other_truth: NDArray[np.int8]


def make_world(rng: Any) -> World:
    """Images of which some are hard for all classes at once; classes from common to rare."""
    features = rng.normal(size=(2 * IMAGES, FEATURES))
    weights = rng.normal(size=(FEATURES, CLASSES)) / np.sqrt(FEATURES)
    evidence = features @ weights + 0.3 * rng.normal(size=(2 * IMAGES, CLASSES))
    limits = np.quantile(evidence, 1 - np.array(PREVALENCES), axis=0).diagonal()
    truth = np.where(evidence > limits, PRESENT, ABSENT).astype(np.int8)
    hard = rng.random((2 * IMAGES, 1)) < 0.1
    seen = features + hard * 1.5 * rng.normal(size=features.shape)
    return World(seen[:IMAGES], truth[:IMAGES], seen[IMAGES:], truth[IMAGES:])


def ridge(features: Floats, labels: NDArray[Any], new: Floats, rng: Any) -> Floats:
    """Scores of a linear model per class."""
    ones = np.ones((len(features), 1))
    x, z = np.hstack([features, ones]), np.hstack([new, np.ones((len(new), 1))])
    scores = np.zeros((len(new), labels.shape[1]))
    for j in range(labels.shape[1]):
        known = labels[:, j] != 0
        gram = x[known].T @ x[known] + 3 * np.eye(x.shape[1])
        scores[:, j] = z @ np.linalg.solve(gram, x[known].T @ labels[known, j])
    return np.asarray(expit(3 * scores))


def by_heart(features: Floats, labels: NDArray[Any], new: Floats, rng: Any) -> Floats:
    """Scores of a model that repeats the labels of the nearest training images of a class."""
    distance = ((new[:, None, :4] - features[None, :, :4]) ** 2).sum(axis=2)
    near = np.exp(-20 * distance)
    known = (labels != 0).astype(float)
    prior = labels.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    mean = (near @ labels + 1e-3 * prior) / (near @ known + 1e-3)
    return np.asarray(expit(3 * mean + 1e-3 * rng.normal(size=mean.shape)))


def noise(features: Floats, labels: NDArray[Any], new: Floats, rng: Any) -> Floats:
    """Scores that know nothing."""
    return np.asarray(rng.random((len(new), labels.shape[1])))


LEARNERS: dict[str, Learner] = {"linear": ridge, "by heart": by_heart, "noise": noise}


def partial(world: World, rng: Any) -> LabelTable:
    """Labels missing at random, with another share in each class."""
    shares = rng.permutation(np.linspace(0.15, 0.6, CLASSES))
    return _table(np.where(rng.random(world.truth.shape) < shares, world.truth, 0))


def presences_of_two(world: World, rng: Any) -> LabelTable:
    """Labels missing at random, but of two classes only presences were noted."""
    shares = rng.permutation(np.linspace(0.15, 0.6, CLASSES))
    labels = np.where(rng.random(world.truth.shape) < shares, world.truth, 0)
    some = labels[:, [2, 5]]
    labels[:, [2, 5]] = np.where(some == PRESENT, some, 0)
    return _table(labels)


def origins(world: World, rng: Any) -> LabelTable:
    """Two origins, of which one has labelled more; one also answered questions of a model."""
    second = np.arange(IMAGES) % 2 == 1
    shares = np.where(second, 0.6, 0.3)[:, None]
    labels = np.where(rng.random(world.truth.shape) < shares, world.truth, 0)
    # questions about labels that are hard: their answers must not test
    strange = (ridge(world.features, world.truth, world.features, rng) > 0.5) != (world.truth > 0)
    asked = (labels == 0) & strange & (rng.random(labels.shape) < 0.5)
    table = _table(np.where(asked, world.truth, labels))
    cells = table.cells
    codes = (second[cells.rows] + 1).astype(np.uint8)
    marks = np.where(asked[cells.rows, cells.columns], CHOSEN, 0).astype(np.int8)
    cells = cells.with_details(origins=codes, asked=marks)
    return LabelTable.from_cells(table.ids, table.classes, cells, None, ["north", "south"])


def merged(world: World, rng: Any) -> LabelTable:
    """Two datasets, each labelled for half of the classes."""
    half = (np.arange(IMAGES) % 2)[:, None]
    labels = np.where(np.arange(CLASSES)[None, :] % 2 == half, world.truth, 0)
    table = _table(labels)
    codes = (half[table.cells.rows, 0] + 1).astype(np.uint8)
    cells = table.cells.with_details(origins=codes)
    return LabelTable.from_cells(table.ids, table.classes, cells, None, ["north", "south"])


def whole_images(world: World, rng: Any) -> LabelTable:
    """All labels of some images, and none of the others."""
    return _table(np.where(rng.random((IMAGES, 1)) < 0.4, world.truth, 0))


def tags(world: World, rng: Any) -> LabelTable:
    """All labels of some images, one present label of others, and none of the rest."""
    kind = rng.integers(3, size=IMAGES)
    draws = np.where(world.truth == PRESENT, rng.random(world.truth.shape), 2.0)
    tag = (draws == draws.min(axis=1, keepdims=True)) & (world.truth == PRESENT)
    keep = (kind == 0)[:, None] | ((kind == 1)[:, None] & tag)
    table = _table(np.where(keep, world.truth, 0))
    cells = table.cells.with_details(origins=(kind[table.cells.rows] + 1).astype(np.uint8))
    return LabelTable.from_cells(table.ids, table.classes, cells, None, ["team", "tags", "-"])


def per_image(world: World, rng: Any) -> LabelTable:
    """Three labels of each image, drawn at random: labels of an image are not independent."""
    rank = np.argsort(np.argsort(rng.random(world.truth.shape), axis=1), axis=1)
    return _table(np.where(rank < 3, world.truth, 0))


def merged_without_origins(world: World, rng: Any) -> LabelTable:
    """Two datasets that were labelled for five and for three classes, as one file."""
    first = rng.permutation(CLASSES) < 5
    looked = np.where(np.arange(IMAGES)[:, None] % 2 == 0, first, ~first)
    return _table(np.where(looked, world.truth, 0))


MISSING = {
    "at random": partial,
    "at random, two classes presences only": presences_of_two,
    "at random, by origin": origins,
    "per image": per_image,
    "merged": merged,
    "merged, no origins": merged_without_origins,
    "whole images": whole_images,
    "team, tags, nothing": tags,
}


def _table(labels: NDArray[Any]) -> LabelTable:
    names = [f"c{j}" for j in range(CLASSES)]
    return LabelTable([f"i{i}" for i in range(IMAGES)], names, labels.astype(np.int8))
