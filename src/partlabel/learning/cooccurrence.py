"""Which classes come together: counted on known labels, kept as a sparse graph.

[1] Huynh and Elhamifar, Interactive Multi-Label CNN Learning with Partial Labels, CVPR 2020.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import eigsh

from partlabel.base.errors import InputError, one_of
from partlabel.labels import PRESENT, LabelTable

_CHUNK = 1 << 18  # images whose pairs are counted in one go


@dataclass(frozen=True)
class LabelGraph:
    """For each class the classes that it is linked to, itself first, and how strongly.

    Args:
        linked: [C, k + 1] classes; a place without a link names the class itself, with weight 0.
        weights: [C, k + 1] that sum to 1.
    """

    linked: NDArray[np.int64]
    weights: NDArray[np.float32]

    def strongest(self, number: int) -> list[tuple[int, int, float]]:
        """The strongest links between different classes: class, linked class, weight."""
        own = self.linked == np.arange(len(self.linked))[:, None]
        weights = np.where(own, 0, self.weights)
        order = np.argsort(-weights, axis=None, kind="stable")[:number]
        rows, places = np.unravel_index(order, weights.shape)
        return [
            (int(j), int(self.linked[j, place]), float(weights[j, place]))
            for j, place in zip(rows, places, strict=True)
            if weights[j, place] > 0
        ]


def count_pairs(table: LabelTable) -> csr_array:
    """[C, C] in how many images two classes are both known to be present."""
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
    """Each class linked to those that come with it most often, by how often (k_a of [1]).

    A weight is the share of a class's images in which the other is present too, and 1 for itself;
    then all weights of a class are divided by their sum. Of equally common classes the first is
    linked.
    """
    counts = count_pairs(table)
    own = counts.diagonal()
    edges = []
    for j in range(len(own)):
        here = slice(counts.indptr[j], counts.indptr[j + 1])
        others, number = counts.indices[here], counts.data[here]
        kept = others != j
        others, number = others[kept], number[kept]
        best = np.lexsort((others, -number))[:neighbours]
        edges += [(j, int(others[b]), float(number[b] / own[j])) for b in best.tolist()]
    return _graph(len(own), edges)


def identity_graph(classes: int) -> LabelGraph:
    """Every class alone."""
    return _graph(classes, [])


def given_graph(classes: Sequence[str], edges: Iterable[tuple[str, str, float]]) -> LabelGraph:
    """Links that someone names: class, linked class, weight relative to the class's own of 1."""
    place = {name: number for number, name in enumerate(classes)}
    made: dict[tuple[int, int], float] = {}
    for name, other, weight in edges:
        for one in (name, other):
            one_of("class", one, place)
        if not (np.isfinite(weight) and weight >= 0):
            raise InputError(f"the link from '{name}' to '{other}' has weight {weight}")
        if name != other:
            made[place[name], place[other]] = weight
    return _graph(len(classes), [(j, other, weight) for (j, other), weight in made.items()])


def label_vectors(table: LabelTable, width: int) -> NDArray[np.float32]:
    """[C, width] vectors whose products say which classes come together, in place of words.

    The leading eigenvectors of the matrix of n_ij / sqrt(n_i n_j), in how many images both are
    known to be present, each times the root of its eigenvalue. Fewer classes than ``width`` leave
    zeros.
    """
    counts = count_pairs(table)
    scale = 1 / np.sqrt(np.maximum(counts.diagonal(), 1))
    joint = counts.multiply(scale[:, None]).multiply(scale).tocsr()
    number = min(width, joint.shape[0])
    if number >= joint.shape[0]:
        values, left = np.linalg.eigh(joint.toarray())
    else:
        values, left = eigsh(joint, number, v0=np.ones(joint.shape[0]), rng=0)  # always the same
    order = np.argsort(-values)[:number]
    found = left[:, order] * np.sqrt(np.maximum(values[order], 0))
    found *= np.where(found.sum(axis=0) < 0, -1, 1)  # a sign is free: the same each time
    return np.pad(found, ((0, 0), (0, width - number))).astype(np.float32)


def _graph(classes: int, edges: list[tuple[int, int, float]]) -> LabelGraph:
    """Links as rows of equal length: the class itself with 1, its edges, padding with 0."""
    rows = np.array([j for j, _, _ in edges], dtype=np.int64)
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    degree = np.bincount(rows, minlength=classes)
    starts = np.cumsum(degree) - degree
    place = np.arange(len(rows)) - starts[rows] + 1
    width = int(degree.max(initial=0)) + 1
    linked = np.repeat(np.arange(classes)[:, None], width, axis=1)
    weights = np.zeros((classes, width))
    weights[:, 0] = 1
    linked[rows, place] = np.array([other for _, other, _ in edges], dtype=np.int64)[order]
    weights[rows, place] = np.array([weight for _, _, weight in edges], dtype=np.float64)[order]
    weights /= weights.sum(axis=1, keepdims=True)
    return LabelGraph(linked, weights.astype(np.float32))
