"""The embeddings of labels, before and after the stage that compares them."""

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray

from partlabel.base.errors import count
from partlabel.labels import PRESENT, LabelTable
from partlabel.models.heads import LabelDecoder
from partlabel.output.drawing import panels, styled, svg
from partlabel.output.report.heat_map_strips import apply_to_maps
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Section, decimal
from partlabel.training.run import Run

_IMAGES, _CLASSES = 500, 8

Points = NDArray[np.float64]
Indices = NDArray[np.int64]


def flatten(points: Points) -> Points:
    """The first two principal components [n, 2] of points [n, d]."""
    centred = points - points.mean(axis=0)
    _, _, components = np.linalg.svd(centred, full_matrices=False)
    flat = centred @ components[:2].T
    return np.asarray(np.pad(flat, ((0, 0), (0, 2 - flat.shape[1]))))


def cohesion(points: Points, classes: Indices) -> tuple[float, float]:
    """Mean cosine of pairs of the same class and of different classes; NaN without such a pair.

    Args:
        points: [n, d]
        classes: [n] the class of each point.
    """
    unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    cosine, same = unit @ unit.T, classes[:, None] == classes
    others = same & ~np.eye(len(classes), dtype=bool)
    means = [cosine[pairs].mean() if pairs.any() else np.nan for pairs in (others, ~same)]
    return float(means[0]), float(means[1])


def label_embeddings(sample: Sample) -> list[Section]:
    """One point per present label of validation images, if the head embeds labels."""
    run = sample.ours.run
    if not run.has_stage(1):
        return []
    rows, image, column = _frequent_labels(sample.val_labels)
    if len(image) < 3:
        return []
    clouds = {
        name: points[image, column].astype(np.float64)
        for name, points in _embeddings(run, sample.val.subset(rows)).items()
    }
    if not clouds:
        return []
    classes = count(len(np.unique(column)), "class", "classes")
    caption = (
        f"Each point is a label that is present in a validation image, of the {classes} with the "
        "most of them. Shown are the first two principal components of the embeddings. Points of "
        "one class should be close together, and far from those of other classes."
    )
    cosines = [
        f"{name} {decimal(same, 2)} within a class and {decimal(other, 2)} between classes"
        for name, (same, other) in ((n, cohesion(c, column)) for n, c in clouds.items())
        if not np.isnan([same, other]).any()
    ]
    if cosines:
        caption += f" The mean cosine of two embeddings is {', '.join(cosines)}."
    figure = _draw_clouds(clouds, column, sample.classes)
    return [Section("Embeddings of labels", caption, figure)]


def _frequent_labels(labels: NDArray[np.int8]) -> tuple[Indices, Indices, Indices]:
    """Present labels [p] of the most frequent classes, as images and columns, and the images' rows.

    Args:
        labels: [m, C] of validation images.
    """
    rows = np.flatnonzero((labels == PRESENT).any(axis=1))[:_IMAGES]
    image, column = np.nonzero(labels[rows] == PRESENT)
    frequent = np.argsort(-np.bincount(column, minlength=labels.shape[1]), kind="stable")
    kept = np.isin(column, frequent[:_CLASSES])
    return rows, image[kept], column[kept].astype(np.int64)


def _embeddings(run: Run, table: LabelTable) -> dict[str, NDArray[np.float32]]:
    """Embeddings [n, C, d] of all labels of some images, at two moments of the training."""
    model = run.classifier()
    head = model.head
    if not isinstance(head, LabelDecoder):
        return {}

    def embed() -> NDArray[np.float32]:
        parts = [part.numpy() for _, part in apply_to_maps(run, model, table, head.embed)]
        return np.concatenate(parts)

    run.load_stage(model, 1)
    before = embed()
    run.load_end(model)
    return {"before the second stage": before, "at the end of the training": embed()}


def _draw_clouds(clouds: dict[str, Points], column: Indices, classes: list[str]) -> str:
    colours = colormaps["tab10"]
    with styled():
        figure, grid = panels(1, len(clouds), 4.2 * len(clouds), 3.4)
        for axes, (name, points) in zip(grid, clouds.items(), strict=True):
            flat = flatten(points)
            for number, j in enumerate(np.unique(column).tolist()):
                x, y = flat[column == j].T
                axes.scatter(x, y, s=8, color=colours(number % 10), label=classes[j], alpha=0.7)
            axes.set(title=name, xticks=[], yticks=[])
        grid[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), markerscale=2)
        return svg(figure)
