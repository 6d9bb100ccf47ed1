"""Features of images as vectors, computed as a training on a frozen backbone computes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base import processes
from partlabel.base.errors import InputError, count, warn
from partlabel.images.named_images import list_images
from partlabel.images.stored import ImageFile
from partlabel.labels import LabelTable
from partlabel.labels.formats import PathLike
from partlabel.models import Classifier, make_backbone
from partlabel.models.features.vector_files import VectorFile
from partlabel.models.features.vector_writing import check_target, write_vectors
from partlabel.models.heads import Linear
from partlabel.models.prediction import iterate_logits
from partlabel.training.arguments import make_settings
from partlabel.training.devices import find_device
from partlabel.training.inputs import make_inputs
from partlabel.training.opening import paths_of
from partlabel.training.settings import Execution, Settings


class Embedded(NamedTuple):
    """Vectors [n, D], the ids [n] of their images, and messages of images that are broken."""

    vectors: NDArray[np.float32]
    ids: list[str]
    broken: list[str]


@processes.together()
def embed(
    images: PathLike | Sequence[PathLike],
    out: PathLike,
    *,
    backbone: str | None = None,
    weights: str | None = None,
    size: int | None = None,
    mirror: bool = False,
    workers: int | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> VectorFile:
    """Write the features of images to a file that ``train(features=...)`` reads.

    Args:
        images: image files, folders, .tar or .parquet shards, or lists of paths. The id of an image
            is its path in its folder, or its name in the shard or list.
        out: the .npy, .npz, .safetensors, .parquet or .arrow file to write.
        backbone, weights, size, mirror: the network, as in :func:`train`; None for the defaults.
        workers: processes that decode images; None for a number that suits this computer.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.
    """
    path = Path(out)
    check_target(path)
    settings = {"backbone": backbone, "weights": weights, "size": size, "mirror": mirror}
    network = make_settings(
        method="bce",
        frozen="all",
        **{k: v for k, v in settings.items() if v is not None and v is not False},
    )
    execution = Execution(
        workers=workers, cache=None if cache is None else Path(cache), device=device or "auto"
    )
    files, nameless = list_images(paths_of(images))
    embedded = embed_images(files, network, execution)
    for message in [*nameless, *embedded.broken]:
        warn(f"left out: {message}")
    write_vectors(path, embedded.vectors, embedded.ids)
    processes.wait_for_all()  # the first process writes, and all read
    return VectorFile(path)


def embed_images(
    images: Mapping[str, ImageFile], settings: Settings, execution: Execution
) -> Embedded:  # fmt: skip
    """The features of images by their ids, as a linear head gets them.

    Args:
        settings: the network, which must be frozen.
    """
    if not images:
        raise InputError("there are no images to embed")
    if processes.size() > len(images):
        raise InputError(
            f"{processes.size()} processes for {count(len(images), 'image')}: start fewer"
        )
    processes.agree({"images": processes.summary(images)})
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
