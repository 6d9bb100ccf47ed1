"""Label graphs from files: links, vectors of class names, or texts."""

import csv
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError
from partlabel.labels.formats.links import read_links
from partlabel.labels.formats.vectors import read_vectors
from partlabel.labels.mentions import mentions
from partlabel.learning.cooccurrence import LabelGraph, cooccurrence_graph, given_graph

Kind = Literal["links", "vectors", "texts"]


def kind_of_graph(path: Path) -> Kind:
    """What a file has: a header ``class,linked,weight``, or ``class,...``, or lines of text."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header = next(csv.reader(stream), [])
    except UnicodeDecodeError as error:
        raise FileError(path, "is neither a CSV file nor a text in UTF-8") from error
    names = [name.strip() for name in header]
    if names[:1] != ["class"] or len(names) < 2:
        return "texts"
    return "links" if names[1] == "linked" else "vectors"


def read_graph(path: Path, classes: list[str], neighbours: int) -> LabelGraph:
    """The label graph of a file.

    * Links are taken as they are.
    * Vectors: each class is linked to those with the most similar vectors, with the cosine as the
      weight. A cosine that is not positive is no link.
    * Texts, one per line: classes are linked that are mentioned in the same texts, as
      :func:`cooccurrence_graph` links those that are present in the same images.

    Args:
        path: the file.
        classes: [C] names.
        neighbours: largest number of links per class, unless the file has the links.
    """
    kind = kind_of_graph(path)
    if kind == "links":
        return given_graph(classes, read_links(path, classes))
    if kind == "vectors":
        return given_graph(classes, alike(read_vectors(path, classes), classes, neighbours))
    with path.open(encoding="utf-8-sig") as stream:
        graph = cooccurrence_graph(mentions(stream, classes), neighbours)
    if graph.linked.shape[1] == 1:
        raise FileError(path, "no line mentions two classes of the labels; each line is one text")
    return graph


def alike(
    vectors: NDArray[np.float32], classes: list[str], neighbours: int
) -> list[tuple[str, str, float]]:
    """Class, linked class and cosine of the most similar vectors [C, d] of each class.

    >>> alike(np.array([[1, 0], [1, 1], [-1, 0]], dtype=np.float32), ["a", "b", "c"], 1)
    [('a', 'b', 0.7071068), ('b', 'a', 0.7071068)]
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    edges = []
    for j, name in enumerate(classes):
        cosine = unit @ unit[j]
        cosine[j] = -np.inf
        nearest = np.argsort(-cosine, kind="stable")[:neighbours]
        edges += [
            (name, classes[other], round(float(cosine[other]), 7))
            for other in nearest[cosine[nearest] > 0].tolist()
        ]
    return edges
