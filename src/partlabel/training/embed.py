"""Features of images as vectors, by the same way that a training on a frozen backbone takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.labels import LabelTable
from partlabel.models import Classifier, make_backbone
from partlabel.models.heads import Linear
from partlabel.models.prediction import iterate_logits
from partlabel.training.devices import find_device
from partlabel.training.inputs import make_inputs
from partlabel.training.settings import Execution, Settings


class Embedded(NamedTuple):
    """Vectors [n, D], the ids [n] of their images, and messages of images that are broken."""

    vectors: NDArray[np.float32]
    ids: list[str]
    broken: list[str]


def embed_images(
    images: Mapping[str, Path], settings: Settings, execution: Execution
) -> Embedded:  # fmt: skip
    """The features of image files by their ids, as a linear head gets them.

    Args:
        settings: the network, which must be frozen.
    """
    if not images:
        raise InputError("there are no images to embed")
    backbone = make_backbone(
        settings.backbone, settings.weights, "all", settings.size, mirror=settings.mirror
    )
    model = Classifier(backbone, Linear(backbone.channels, 1), ["any"])
    model.to(find_device(execution.device))
    table = LabelTable(list(images), model.classes, np.zeros((len(images), 1), dtype=np.int8))
    broken: list[str] = []
    inputs = make_inputs(
        model, table, list(images.values()), settings, execution, broken.append
    )  # fmt: skip
    parts = iterate_logits(
        model,
        inputs,
        np.arange(len(table)),
        settings.batch,
        execution.workers,
        forward=lambda model, maps: model.backbone(maps).mean(dim=(2, 3)).cpu(),
    )
    readable = [(rows, vectors.numpy()) for rows, vectors in parts]
    if not readable:
        raise InputError(f"no image can be decoded; the first: {broken[0]}")
    rows = np.concatenate([rows for rows, _ in readable])
    return Embedded(
        np.concatenate([vectors for _, vectors in readable]), list(table.ids.take(rows)), broken
    )
