"""Label graphs from files, and words in texts."""

from pathlib import Path

import numpy as np
import pytest

from partlabel import LabelTable
from partlabel.base.errors import FileError, InputError
from partlabel.labels.mentions import frequent_words, mentions
from partlabel.learning.cooccurrence import LabelGraph, cooccurrence_graph
from partlabel.learning.given_graphs import kind_of_graph, read_graph
from partlabel.learning.method import Task
from partlabel.learning.methods.imcl import InteractiveLearning

CLASSES = ["dog", "traffic light", "bus", "cat"]
TEXTS = (
    "Two dogs at a traffic light.\n\nA dog on a bus; the bus is red.\nBuses, and a Dog\nA catfish\n"
)


def links(graph: LabelGraph) -> dict[tuple[str, str], float]:
    """Links between different classes, relative to the weight of a class for itself."""
    return {
        (CLASSES[j], CLASSES[k]): float(weights[n] / weights[0])
        for j, (row, weights) in enumerate(zip(graph.linked, graph.weights, strict=True))
        for n, k in enumerate(row)
        if k != j
    }


def test_mentions() -> None:
    found = mentions(TEXTS.splitlines(), CLASSES).dense().tolist()
    assert found == [[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0]]
    assert mentions([], CLASSES).shape == (0, 4)
    several = mentions(["horses"], ["horse", "horses"])
    assert several.dense().tolist() == [[0, 1]]
    assert not mentions(["dogs"], CLASSES, plurals=False).dense().any()
    # the parts of a name must follow each other, in order
    assert not mentions(["a light for traffic", "traffic"], CLASSES).dense().any()
    assert mentions(["a man's dining_table"], ["dining table", "man"]).dense().tolist() == [[1, 0]]


def test_frequent_words_are_counted_once_per_text() -> None:
    assert frequent_words(["b b b a", "a c", "a c"], 3) == ["a", "c", "b"]


def test_texts_link_what_they_mention_together(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXTS)
    assert kind_of_graph(path) == "texts"
    assert links(read_graph(path, CLASSES, 50)) == pytest.approx(
        {
            ("dog", "bus"): 2 / 3,
            ("dog", "traffic light"): 1 / 3,
            ("traffic light", "dog"): 1.0,
            ("bus", "dog"): 1.0,
        }
    )
    assert ("dog", "traffic light") not in links(read_graph(path, CLASSES, 1))
    (tmp_path / "nothing.txt").write_text("a dog\na bus\n")
    with pytest.raises(FileError, match="no line mentions two classes"):
        read_graph(tmp_path / "nothing.txt", CLASSES, 50)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00\xff")
    with pytest.raises(FileError, match="neither a CSV file nor a text"):
        kind_of_graph(tmp_path / "bytes")


def test_vectors_link_the_most_similar_names(tmp_path: Path) -> None:
    path = tmp_path / "vectors.csv"
    path.write_text("class,x,y\ndog,1,0\ntraffic light,0,2\nbus,1,1\ncat,-3,0\n")
    assert kind_of_graph(path) == "vectors"
    half = 2**-0.5
    assert links(read_graph(path, CLASSES, 2)) == pytest.approx(
        {
            ("dog", "bus"): half,
            ("traffic light", "bus"): half,
            ("bus", "dog"): half,
            ("bus", "traffic light"): half,
        }
    )


def task(labels: LabelTable) -> Task:
    return Task(labels=labels, validation=labels, epochs=2)


def test_imcl_takes_each_kind_of_file(tmp_path: Path) -> None:
    labels = LabelTable(["a", "b"], CLASSES, np.array([[1, 1, -1, -1], [-1, 1, 1, 0]]))
    (tmp_path / "corpus.txt").write_text(TEXTS)
    (tmp_path / "links.csv").write_text("class,linked,weight\nbus,cat,0.5\n")
    method = InteractiveLearning(graph=str(tmp_path / "corpus.txt"), k_a=1)
    assert ("dog", "bus") in links(method.links(task(labels)))
    method = InteractiveLearning(graph=str(tmp_path / "links.csv"))
    assert links(method.links(task(labels))) == {("bus", "cat"): 0.5}
    method = InteractiveLearning(graph=str(tmp_path / "links.csv"), k_a=1)
    with pytest.raises(InputError, match="k_a would have no effect without a graph without given"):
        method.links(task(labels))
    with pytest.raises(InputError, match="k_a would have no effect without a graph"):
        InteractiveLearning(graph="identity", k_a=1)
    with pytest.raises(InputError, match="there is no such file"):
        InteractiveLearning(graph="nothing").links(task(labels))
    counted = InteractiveLearning().links(task(labels))
    assert np.array_equal(counted.linked, cooccurrence_graph(labels).linked)
