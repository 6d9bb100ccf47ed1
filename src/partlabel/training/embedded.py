"""Training and scoring on features that are given, instead of on images."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from partlabel.base.allocation import reuse_blocks
from partlabel.base.errors import InputError, PartlabelWarning, count
from partlabel.labels import LabelTable
from partlabel.learning.teachers import TeacherScores
from partlabel.models import Classifier, Reduction
from partlabel.models.features.embeddings import Embeddings
from partlabel.models.features.evidence_inputs import EvidenceInputs
from partlabel.models.features.vector_files import VectorFile
from partlabel.models.prediction import InputSource
from partlabel.training.image_files import locate_all
from partlabel.training.inputs import make_inputs
from partlabel.training.run import Run
from partlabel.training.settings import NO_BACKBONE

PathLike = str | os.PathLike[str]


def open_vectors(features: PathLike | None, ids: PathLike | None = None) -> VectorFile | None:
    """The file of the features; None if none is named."""
    if features is None:
        if ids is not None:
            raise InputError("--feature-ids has no effect without --features")
        return None
    return VectorFile(Path(features), None if ids is None else Path(ids))


def for_features(arguments: dict[str, Any], *, has_features: bool) -> dict[str, Any]:
    """The settings of a training on features: there is no backbone to choose or to train."""
    backbone = arguments.get("backbone")
    if not has_features:
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
    reuse_blocks()
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
    evidence: bool = True,
) -> InputSource:
    """The inputs of a trained model for the images of a table: features, or image files.

    Args:
        images: the folder of the images; None for the run's own.
        on_broken, keep_maps: as in :func:`inputs.make_inputs`.
        evidence: whether to add the scores of the run's teachers.
    """
    inputs: InputSource
    if run.features is not None:
        inputs = embedded_inputs(model, table, run.features)
    else:
        paths = locate_all(table, run.images if images is None else images)
        inputs = make_inputs(
            model, table, paths, run.settings, run.execution, on_broken, keep_maps=keep_maps
        )
    return with_evidence(run, table, inputs) if evidence else inputs


def with_evidence(run: Run, table: LabelTable, inputs: InputSource) -> InputSource:
    """Inputs with the scores of the run's teachers, where there are any for these images."""
    if not run.record.teachers:
        return inputs
    scores = TeacherScores(run.teachers, table)
    if (scores.covered() < len(table)).any():
        warnings.warn(
            f"{describe_evidence(scores, len(table))}. The others are scored without; name files "
            "with their scores with --teacher",
            PartlabelWarning,
            stacklevel=3,
        )
    return EvidenceInputs(inputs, scores)


def describe_evidence(scores: TeacherScores, images: int) -> str:
    """For how many images there are scores of each teacher."""
    parts = [
        f"{teacher.path.name} has scores of {number:,} of {count(images, 'image')}"
        for teacher, number in zip(scores.teachers, scores.covered().tolist(), strict=True)
    ]
    return f"teachers: {'; '.join(parts)}"


def warn_of_pupils(scores: TeacherScores, table: LabelTable, warn: Callable[[str], object]) -> None:
    """Warn of teachers that seem to have been trained on the labels that they are to help with."""
    for teacher, found in zip(scores.teachers, scores.separations(table), strict=True):
        if found.too_good:
            labels = count(found.present, "known present label")
            warn(
                f"{teacher.path.name}: its scores tell {labels} from absent ones almost without "
                f"error (AUC {100 * found.area:.1f}%). If it was trained on these labels, the "
                "validation figures and the guarantees of this run are worthless: use a teacher "
                "that has not seen them"
            )
