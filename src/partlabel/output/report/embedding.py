"""The embeddings of labels, before and after they were compared with each other."""

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray

from partlabel.base.errors import count
from partlabel.labels import PRESENT
from partlabel.models.heads import LabelDecoder
from partlabel.output.drawing import panels, styled, svg
from partlabel.output.report.looking import over_maps
from partlabel.output.report.parts import Part
from partlabel.output.report.sample import Sample

_IMAGES, _CLASSES = 500, 8

Points = NDArray[np.float64]


def flatten(points: Points) -> Points:
    """[n, d] to [n, 2]: the two directions in which they differ most."""
    centred = points - points.mean(axis=0)
    _, _, ways = np.linalg.svd(centred, full_matrices=False)
    flat = centred @ ways[:2].T
    return np.asarray(np.pad(flat, ((0, 0), (0, 2 - flat.shape[1]))))


def cohesion(points: Points, classes: NDArray[np.int64]) -> tuple[float, float]:
    """Mean cosine between points of the same class, and of different ones; NaN of no pair."""
    unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    similar, same = unit @ unit.T, classes[:, None] == classes
    others = same & ~np.eye(len(classes), dtype=bool)
    means = [similar[here].mean() if here.any() else np.nan for here in (others, ~same)]
    return float(means[0]), float(means[1])


def label_embeddings(sample: Sample) -> list[Part]:
    """A point for each present label of validation images, if the head embeds labels."""
    run = sample.ours.run
    model = run.classifier()
    head = model.head
    if not isinstance(head, LabelDecoder) or not run.stage_weights(1):
        return []
    first = len(sample.shown) - len(sample.val_labels)
    rows = np.flatnonzero((sample.val_labels == PRESENT).any(axis=1))[:_IMAGES]
    image, column = np.nonzero(sample.val_labels[rows] == PRESENT)
    shown = np.argsort(-np.bincount(column, minlength=len(sample.classes)), kind="stable")
    kept = np.isin(column, shown[:_CLASSES])
    image, column = image[kept], column[kept].astype(np.int64)
    if len(image) < 3:
        return []
    table = sample.shown.subset(first + rows)
    moments = {
        "before the second stage": run.stage_weights(1),
        "at the end of the training": run.last_state()["model"],
    }
    clouds = {}
    for name, weights in moments.items():
        model.load_state_dict(weights, strict=False)
        parts = [found.numpy() for _, found in over_maps(run, model, table, head.embed)]
        clouds[name] = np.concatenate(parts)[image, column].astype(np.float64)
    said = [
        f"{name} {same:.2f} within a class and {other:.2f} between classes"
        for name, (same, other) in ((n, cohesion(c, column)) for n, c in clouds.items())
        if not np.isnan([same, other]).any()
    ]
    classes = count(len(np.unique(column)), "class", "classes")
    caption = (
        f"A point is a label that is present in a validation image, of {classes} (the commonest), "
        "along the two directions in which their embeddings differ most."
    )
    if said:
        caption += f" The mean cosine of two embeddings is {', '.join(said)}."
    figure = _drawn(clouds, column, sample.classes)
    return [Part("Embeddings of labels", caption, figure)]


def _drawn(clouds: dict[str, Points], column: NDArray[np.int64], classes: list[str]) -> str:
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
