"""Co-occurrence of classes, counted on known labels and stored as a sparse graph.

[1] Huynh and Elhamifar, Interactive Multi-Label CNN Learning with Partial Labels, CVPR 2020.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from partlabel.base.errors import InputError, one_of
from partlabel.labels import PRESENT, LabelTable

_CHUNK = 1 << 18  # images whose pairs are counted at a time, to bound memory


@dataclass(frozen=True)
class LabelGraph:
    """A sparse graph of classes: each class is linked to itself and to at most k others.

    Args:
        linked: [C, k + 1] the linked classes, the class itself first. Unused entries repeat the
            class itself and have weight 0.
        weights: [C, k + 1] the weight of each link; the weights of a class sum to 1.
    """

    linked: NDArray[np.int64]
    weights: NDArray[np.float32]

    def strongest(self, number: int) -> list[tuple[int, int, float]]:
        """The strongest links between different classes, as (class, linked class, weight)."""
        own = self.linked == np.arange(len(self.linked))[:, None]
        weights = np.where(own, 0, self.weights)
        order = np.argsort(-weights, axis=None, kind="stable")[:number]
        rows, columns = np.unravel_index(order, weights.shape)
        return [
            (int(j), int(self.linked[j, column]), float(weights[j, column]))
            for j, column in zip(rows, columns, strict=True)
            if weights[j, column] > 0
        ]


def count_pairs(table: LabelTable) -> csr_array:
    """The number of images in which two classes are both known to be present [C, C]."""
    classes = len(table.classes)
    total: Any = csr_array((classes, classes), dtype=np.int64)
    cells = table.cells
    for first in range(0, len(table), _CHUNK):
        rows = np.arange(first, min(first + _CHUNK, len(table)))
        part = cells.take(rows)
        present = part.values == PRESENT
        shape = (len(rows), classes)
        ones = np.ones(int(present.sum()), dtype=np.int64)
        matrix = csr_array((ones, (part.rows[present], part.columns[present])), shape=shape)
        total = total + matrix.T @ matrix
    return csr_array(total)


def cooccurrence_graph(table: LabelTable, neighbours: int = 50) -> LabelGraph:
    """Link each class to the classes with which it occurs most often.

    The weight of a link is the share of the class's images in which the other class is present too;
    the weight of the class itself is 1. Then the weights of a class are divided by their sum. Ties
    go to the class that comes first.

    Args:
        table: the labels; only those known to be present are used.
        neighbours: largest number of links per class, k_a in [1].
    """
    counts = count_pairs(table)
    own = counts.diagonal()
    edges = []
    for j in range(len(own)):
        entries = slice(counts.indptr[j], counts.indptr[j + 1])
        others, number = counts.indices[entries], counts.data[entries]
        different = others != j
        others, number = others[different], number[different]
        best = np.lexsort((others, -number))[:neighbours]
        edges += [(j, int(others[b]), float(number[b] / own[j])) for b in best.tolist()]
    return _graph(len(own), edges)


def identity_graph(classes: int) -> LabelGraph:
    """A graph without links between different classes."""
    return _graph(classes, [])


def given_graph(classes: Sequence[str], edges: Iterable[tuple[str, str, float]]) -> LabelGraph:
    """A graph with the links that a user gives.

    Args:
        classes: [C] names.
        edges: class, linked class, and weight of the link. A class's weight for itself is 1. Then
            the weights of a class are divided by their sum.
    """
    index = {name: number for number, name in enumerate(classes)}
    links: dict[tuple[int, int], float] = {}
    for name, other, weight in edges:
        for class_name in (name, other):
            one_of("class", class_name, index)
        if not (np.isfinite(weight) and weight >= 0):
            raise InputError(
                f"the link from '{name}' to '{other}' has weight {weight}; it must be at least 0"
            )
        if name != other:
            links[index[name], index[other]] = weight
    return _graph(len(classes), [(j, other, weight) for (j, other), weight in links.items()])


def conditional_shares(table: LabelTable) -> NDArray[np.float32]:
    """[C, C] of the images in which class i is known to be present, the share that also has j.

    The share of a class with itself is 1.
    """
    counts = count_pairs(table).toarray()
    shares: NDArray[np.float32] = np.divide(
        counts, np.maximum(counts.diagonal(), 1)[:, None], dtype=np.float32
    )
    np.fill_diagonal(shares, 1)
    return shares


def label_vectors(table: LabelTable, width: int) -> NDArray[np.float32]:
    """Class vectors [C, width] from co-occurrence, to be used in place of word vectors.

    The product of two vectors approximates n_ij / sqrt(n_i n_j), where n_ij is the number of images
    in which both classes are known to be present. The vectors consist of the leading eigenvectors
    of this matrix, each times the square root of its eigenvalue. With fewer classes than ``width``
    the remaining columns are 0.
    """
    from scipy.sparse.linalg import eigsh  # takes a while to import

    counts = count_pairs(table)
    scale = 1 / np.sqrt(np.maximum(counts.diagonal(), 1))
    joint = counts.multiply(scale[:, None]).multiply(scale).tocsr()
    number = min(width, joint.shape[0])
    if number >= joint.shape[0]:
        values, eigenvectors = np.linalg.eigh(joint.toarray())
    else:
        values, eigenvectors = eigsh(
            joint, number, v0=np.ones(joint.shape[0]), rng=0
        )  # reproducible
    order = np.argsort(-values)[:number]
    vectors = eigenvectors[:, order] * np.sqrt(np.maximum(values[order], 0))
    vectors *= np.where(vectors.sum(axis=0) < 0, -1, 1)  # makes the arbitrary sign reproducible
    return np.pad(vectors, ((0, 0), (0, width - number))).astype(np.float32)


def _graph(classes: int, edges: list[tuple[int, int, float]]) -> LabelGraph:
    """A graph from edges (class, linked class, weight); see :class:`LabelGraph`."""
    rows = np.array([j for j, _, _ in edges], dtype=np.int64)
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    degree = np.bincount(rows, minlength=classes)
    starts = np.cumsum(degree) - degree
    columns = np.arange(len(rows)) - starts[rows] + 1
    width = int(degree.max(initial=0)) + 1
    linked = np.repeat(np.arange(classes)[:, None], width, axis=1)
    weights = np.zeros((classes, width))
    weights[:, 0] = 1
    linked[rows, columns] = np.array([other for _, other, _ in edges], dtype=np.int64)[order]
    weights[rows, columns] = np.array([weight for _, _, weight in edges], dtype=np.float64)[order]
    weights /= weights.sum(axis=1, keepdims=True)
    return LabelGraph(linked, weights.astype(np.float32))
