"""Training and scoring on features that are given, instead of on images."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from partlabel.base.errors import InputError
from partlabel.labels import LabelTable
from partlabel.models import Classifier, Reduction
from partlabel.models.features.embeddings import Embeddings
from partlabel.models.features.vector_files import VectorFile
from partlabel.models.prediction import InputSource
from partlabel.training.inputs import make_inputs
from partlabel.training.run import Run
from partlabel.training.selection import locate_all
from partlabel.training.settings import NO_BACKBONE

PathLike = str | os.PathLike[str]


def open_vectors(features: PathLike | None, ids: PathLike | None = None) -> VectorFile | None:
    """The file of the features; None if none is named."""
    if features is None:
        if ids is not None:
            raise InputError("--feature-ids has no effect without --features")
        return None
    return VectorFile(Path(features), None if ids is None else Path(ids))


def for_features(arguments: dict[str, Any], *, given: bool) -> dict[str, Any]:
    """The settings of a training on features: there is no backbone to choose or to train."""
    backbone = arguments.get("backbone")
    if not given:
        if backbone == NO_BACKBONE:
            raise InputError(f"--backbone {NO_BACKBONE} needs --features: there is no network")
        return arguments
    if backbone not in (None, NO_BACKBONE):
        raise InputError(f"--backbone {backbone} has no effect with --features")
    if arguments.get("frozen") not in (None, "all", True):
        raise InputError("--unfreeze has no effect with --features: there is no network to train")
    return {**arguments, "backbone": NO_BACKBONE, "frozen": "all"}


def embedded_inputs(
    model: Classifier,
    table: LabelTable,
    features: VectorFile,
    on_maps: Callable[[InputSource], object] = lambda maps: None,
) -> Embeddings:
    """The features of the images of a table, reduced if the model reduces them.

    Args:
        on_maps: called with the features before they are reduced.
    """
    embeddings = Embeddings(features, features.locate(table.ids))
    on_maps(embeddings)
    reduction = model.backbone.reduction
    if isinstance(reduction, Reduction):

        def reduce(maps: Tensor) -> Tensor:
            with torch.no_grad():
                reduced: Tensor = reduction(maps.to(reduction.mean.device))
            return reduced.cpu()

        embeddings.transform = reduce
    return embeddings


def inputs_of(
    run: Run,
    model: Classifier,
    table: LabelTable,
    images: Path | None = None,
    *,
    on_broken: Callable[[str], object] = lambda message: None,
    keep_maps: bool = False,
) -> InputSource:
    """The inputs of a trained model for the images of a table: features, or image files.

    Args:
        images: the folder of the images; None for the run's own.
        on_broken, keep_maps: as in :func:`inputs.make_inputs`.
    """
    if run.features is not None:
        embeddings = embedded_inputs(model, table, run.features)
        run.features.check(embeddings.rows[np.argsort(embeddings.rows)])
        return embeddings
    paths = locate_all(table, run.images if images is None else images)
    return make_inputs(
        model, table, paths, run.settings, run.execution, on_broken, keep_maps=keep_maps
    )
