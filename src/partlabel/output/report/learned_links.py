"""The label graph of a run, before and after it was learned."""

import numpy as np
from numpy.typing import NDArray

from partlabel.labels.formats.links import Link, write_links
from partlabel.learning.cooccurrence import LabelGraph
from partlabel.learning.label_graph import LearnedGraph
from partlabel.output.drawing import BLUE, GREY, panels, styled, svg
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Section

_MOST_LINKS = 20


def label_links(sample: Sample, graph: LearnedGraph | None) -> list[Section]:
    """The strongest links of a label graph; writes all links to ``graph.csv``."""
    if graph is None or graph.linked.shape[1] == 1:
        return []
    run, classes = sample.ours.run, sample.classes
    linked, before, after = (
        tensor.cpu().numpy() for tensor in (graph.linked, graph.first, graph.weights)
    )
    write_links(run.folder / "graph.csv", links_of(LabelGraph(linked, after), classes))
    position = {(j, int(k)): (j, n) for j, row in enumerate(linked) for n, k in enumerate(row)}
    strengths = np.maximum(np.abs(before), np.abs(after))
    strongest = LabelGraph(linked, strengths).strongest(_MOST_LINKS)
    links = [position[j, other] for j, other, _ in strongest]
    names = [f"{classes[j]} ← {classes[other]}" for j, other, _ in strongest]
    caption = (
        "How much the labels of a class (left of the arrow) are explained by another class in "
        "similar images (right of it): grey before the training, blue as learned. Each class also "
        "has a weight for itself; before the training, all weights of a class sum to 1. All links "
        "that are not negative are in graph.csv next to this page; --set graph=graph.csv starts "
        "another training with them."
    )
    values = [np.array([weights[link] for link in links]) for weights in (before, after)]
    return [Section("Labels that occur together", caption, _draw_links(names, *values))]


def links_of(graph: LabelGraph, classes: list[str]) -> list[Link]:
    """Links between different classes, relative to the weight of a class for itself.

    The file of links cannot hold negative weights, so these are left out. So are all links of a
    class whose weight for itself is not positive.
    """
    links: list[Link] = []
    for j, (row, weights) in enumerate(zip(graph.linked, graph.weights, strict=True)):
        links += [
            (classes[j], classes[int(other)], round(float(weight / weights[0]), 6))
            for other, weight in zip(row[1:], weights[1:], strict=True)
            if other != j and weight >= 0 and weights[0] > 0
        ]
    return links


def _draw_links(names: list[str], before: NDArray[np.float64], after: NDArray[np.float64]) -> str:
    rows = np.arange(len(names))[::-1]
    with styled():
        figure, (axes,) = panels(1, 1, 7, 0.9 + 0.26 * len(names))
        axes.barh(rows + 0.2, before, 0.38, color=GREY, label="before the training")
        axes.barh(rows - 0.2, after, 0.38, color=BLUE, label="learned")
        axes.set_yticks(rows, names)
        axes.set(xlabel="weight")
        axes.legend()
        return svg(figure)
