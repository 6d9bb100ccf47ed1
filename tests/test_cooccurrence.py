"""Label graphs equal plain counting of co-occurrences."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partlabel.base.errors import InputError
from partlabel.labels import LabelTable
from partlabel.learning import cooccurrence
from partlabel.learning.cooccurrence import (
    LabelGraph,
    cooccurrence_graph,
    count_pairs,
    given_graph,
    identity_graph,
)


def table(labels: Any) -> LabelTable:
    names = [f"{i}" for i in range(len(labels))]
    return LabelTable(names, [f"c{j}" for j in range(labels.shape[1])], labels)


def dense(graph: LabelGraph) -> Any:
    """The matrix A [C, C]: A[j, j'] is the weight of j' for j."""
    matrix = np.zeros((len(graph.linked), len(graph.linked)))
    for j, (others, weights) in enumerate(zip(graph.linked, graph.weights, strict=True)):
        for other, weight in zip(others, weights, strict=True):
            matrix[j, other] += weight
    return matrix


@given(
    seed=st.integers(0, 10**6),
    images=st.integers(1, 12),
    classes=st.integers(1, 6),
    neighbours=st.integers(0, 7),
    chunk=st.integers(1, 5),
)
def test_equals_plain_counting(
    seed: int, images: int, classes: int, neighbours: int, chunk: int
) -> None:
    labels = np.random.default_rng(seed).integers(-1, 2, (images, classes))
    default = cooccurrence._CHUNK
    cooccurrence._CHUNK = chunk
    try:
        counts = count_pairs(table(labels)).toarray()
        graph = cooccurrence_graph(table(labels), neighbours)
    finally:
        cooccurrence._CHUNK = default
    expected = np.zeros((classes, classes))
    for j, other in np.ndindex(classes, classes):
        both = sum(int(row[j] == 1 and row[other] == 1) for row in labels)
        assert counts[j, other] == both
    for j in range(classes):
        ranked = sorted(
            (other for other in range(classes) if other != j and counts[j, other]),
            key=lambda other: (-counts[j, other], other),
        )
        expected[j, j] = 1
        for other in ranked[:neighbours]:
            expected[j, other] = counts[j, other] / counts[j, j]
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(dense(graph), expected, atol=1e-6)
    assert graph.linked.shape[1] <= neighbours + 1


def test_the_strongest_links() -> None:
    labels = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1], [0, -1, 1]])
    links = cooccurrence_graph(table(labels)).strongest(2)
    assert [(j, other) for j, other, _ in links] == [(1, 0), (0, 1)]
    assert identity_graph(3).strongest(5) == []


def test_links_given_by_a_user() -> None:
    graph = given_graph(["cat", "dog", "sofa"], [("cat", "sofa", 3), ("cat", "cat", 9)])
    np.testing.assert_allclose(dense(graph), np.array([[0.25, 0, 0.75], [0, 1, 0], [0, 0, 1]]))
    with pytest.raises(InputError, match="no class 'car'; did you mean 'cat'"):
        given_graph(["cat", "dog"], [("car", "dog", 1)])
    with pytest.raises(InputError, match="has weight -1; it must be at least 0"):
        given_graph(["cat", "dog"], [("cat", "dog", -1)])
    np.testing.assert_allclose(dense(identity_graph(2)), np.eye(2))
