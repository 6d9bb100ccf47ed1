"""The label graph of a run, before and after it was learned."""

import numpy as np
from numpy.typing import NDArray

from partlabel.labels.formats.links import Link, write_links
from partlabel.learning.cooccurrence import LabelGraph
from partlabel.learning.label_graph import LearnedGraph
from partlabel.output.drawing import BLUE, GREY, panels, styled, svg
from partlabel.output.report.parts import Part
from partlabel.output.report.sample import Sample

_SHOWN = 20


def label_links(sample: Sample, graph: LearnedGraph | None) -> list[Part]:
    """The strongest links of a label graph; writes all of them to ``graph.csv``."""
    if graph is None or graph.linked.shape[1] == 1:
        return []
    run, classes = sample.ours.run, sample.classes
    linked, before, after = (
        tensor.cpu().numpy() for tensor in (graph.linked, graph.first, graph.weights)
    )
    write_links(run.folder / "graph.csv", links_of(LabelGraph(linked, after), classes))
    place = {(j, int(other)): (j, n) for j, row in enumerate(linked) for n, other in enumerate(row)}
    strongest = LabelGraph(linked, np.maximum(np.abs(before), np.abs(after))).strongest(_SHOWN)
    pairs = [place[j, other] for j, other, _ in strongest]
    names = [f"{classes[j]} ← {classes[other]}" for j, other, _ in strongest]
    caption = (
        "How much a class (left) is explained by another one of similar images (right): grey at "
        "first, blue as learned. A class has a weight for itself too; all "
        "weights of a class were 1 together. Links that are not negative are in graph.csv beside "
        "this page, which --set graph=graph.csv can begin with."
    )
    values = [np.array([weights[at] for at in pairs]) for weights in (before, after)]
    return [Part("Labels that come together", caption, _drawn(names, *values))]


def links_of(graph: LabelGraph, classes: list[str]) -> list[Link]:
    """Links between different classes, relative to a class's weight for itself.

    What such a file cannot say is left out: a negative weight, all links of a class whose own
    weight is not positive.
    """
    found: list[Link] = []
    for j, (row, weights) in enumerate(zip(graph.linked, graph.weights, strict=True)):
        found += [
            (classes[j], classes[int(other)], round(float(weight / weights[0]), 6))
            for other, weight in zip(row[1:], weights[1:], strict=True)
            if other != j and weight >= 0 and weights[0] > 0
        ]
    return found


def _drawn(names: list[str], before: NDArray[np.float64], after: NDArray[np.float64]) -> str:
    rows = np.arange(len(names))[::-1]
    with styled():
        figure, (axes,) = panels(1, 1, 7, 0.9 + 0.26 * len(names))
        axes.barh(rows + 0.2, before, 0.38, color=GREY, label="at first")
        axes.barh(rows - 0.2, after, 0.38, color=BLUE, label="learned")
        axes.set_yticks(rows, names)
        axes.set(xlabel="weight")
        axes.legend()
        return svg(figure)
