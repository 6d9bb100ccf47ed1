"""The images that a method found to be similar, before and after it compared images."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning.extensions import FindSimilar
from partlabel.models import Classifier
from partlabel.output.report.heat_map_strips import apply_to_maps
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Picture, Section
from partlabel.output.report.thumbnails import thumbnails
from partlabel.training.run import Run

_POOL, _SHOWN, _NEIGHBOURS = 128, 4, 3
_BEFORE, _AFTER = "before", "at the end"


class Neighbour(NamedTuple):
    """A similar image: its row in the pool, and the weight of its labels."""

    row: int
    weight: float


def similar_images(sample: Sample, find: FindSimilar | None) -> list[Section]:
    """Some training images, each with the similar images that the method finds for it."""
    run = sample.ours.run
    if find is None or not run.has_stage(1) or run.record.teachers:
        return []
    rows = sample.drawn[:_POOL]
    table = sample.training.subset(rows)
    batch = Batch(torch.from_numpy(rows), torch.from_numpy(table.dense()).float(), {})
    model, found = run.classifier(), {}
    for moment in (_BEFORE, _AFTER):
        run.load_stage(model, 1) if moment == _BEFORE else run.load_end(model)
        similar = find(*_outputs(run, model, table), batch)
        found[moment] = strongest(similar.images.numpy(), similar.label_coef.numpy(), _NEIGHBOURS)
    numbers = np.array([len(one) for one in found[_AFTER]])
    chosen = np.argsort(-numbers, kind="stable")[: min(_SHOWN, int((numbers > 0).sum()))]
    images, names = thumbnails(run, list(table.ids)), list(table.ids)
    pictures = []
    for row in chosen.tolist():
        pictures.append(Picture(names[row], images[row], [("known", "● this image")]))
        pictures += [
            Picture(names[one.row], images[one.row], [("filled", f"{one.weight:.2f} {moment}")])
            for moment in (_BEFORE, _AFTER)
            for one in found[moment][row]
        ]
    caption = (
        f"Some training images, each followed by at most {_NEIGHBOURS} of {len(rows)} others whose "
        "labels and features best explain its own, with the weights of their labels: for the model "
        "before it compared images, and for the model at the end of the training. In a training "
        "step only the images of a batch are compared."
    )
    return [Section("Similar images", caption, pictures=pictures)] if pictures else []


def strongest(
    images: NDArray[np.int64], weights: NDArray[np.float32], most: int
) -> list[list[Neighbour]]:
    """The similar images of each image, those with the largest weights first.

    Args:
        images: [n, k] rows of similar images, -1 for none.
        weights: [n, k]
        most: number of similar images per image.

    >>> strongest(np.array([[2, 1, -1]]), np.array([[0.25, 0.5, 0.0]], dtype=np.float32), 2)
    [[Neighbour(row=1, weight=0.5), Neighbour(row=2, weight=0.25)]]
    """
    return [
        sorted(
            (
                Neighbour(int(row), float(weight))
                for row, weight in zip(rows, coefficients, strict=True)
                if row >= 0 and weight > 0
            ),
            key=lambda one: -one.weight,
        )[:most]
        for rows, coefficients in zip(images, weights, strict=True)
    ]


def _outputs(run: Run, model: Classifier, table: LabelTable) -> tuple[Tensor, Tensor]:
    """Mean features [n, D] and logits [n, C] of images."""

    def both(maps: Tensor) -> Tensor:
        return torch.cat([maps.mean(dim=(2, 3)), model.head(maps)], dim=1)

    parts = torch.cat([part for _, part in apply_to_maps(run, model, table, both)])
    width = parts.shape[1] - len(table.classes)
    return parts[:, :width], parts[:, width:]
