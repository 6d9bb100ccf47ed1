"""Which images of a run stay together: those that a user groups, and near-duplicates."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from partlabel.base.errors import PartlabelWarning, count
from partlabel.base.randomness import key
from partlabel.images.batches import Rows
from partlabel.images.stored import ImageFile
from partlabel.labels import LabelTable
from partlabel.labels.formats import ReadOptions, columns_of
from partlabel.labels.formats.group_column import is_file, read_groups
from partlabel.labels.groups import Groups
from partlabel.models.features.embeddings import Embeddings
from partlabel.models.features.vector_files import VectorFile
from partlabel.models.prediction import InputSource
from partlabel.training.auto.held_features import hold
from partlabel.training.auto.members import FEATURES_ONLY
from partlabel.training.build import build
from partlabel.training.devices import find_device
from partlabel.training.inputs import make_inputs
from partlabel.training.near_duplicates import (
    MOST,
    TOO_MANY,
    Floats,
    describe,
    equal_files,
    similar_images,
)
from partlabel.training.run_split import Selection
from partlabel.training.settings import AUTO, Execution, Settings


def without_group(options: ReadOptions, settings: Settings, labels: Path) -> ReadOptions:
    """Options that do not read the column of ``--group`` as a class."""
    group = settings.group
    if group is None or is_file(group) or group not in columns_of(labels):
        return options
    if group in ("split", "origin") or group in options.ignore_columns:  # no class
        return options
    return replace(options, ignore_columns=[*options.ignore_columns, group])


def stated_groups(table: LabelTable, settings: Settings, labels: Path | None) -> Groups | None:
    """The groups of ``--group``; None without.

    Args:
        labels: the label file; None if the labels are a table in memory.
    """
    return None if settings.group is None else read_groups(settings.group, labels, table)


def with_near_duplicates(
    selection: Selection,
    settings: Settings,
    execution: Execution,
    paths: dict[int, ImageFile],
    vectors: VectorFile | None,
    on_note: Callable[[str], object],
) -> Groups:
    """The groups of a selection, joined with those of near-duplicates among its images.

    Images are compared by the content of their files; if the features of a frozen, pretrained
    backbone are trained on, or features are given, by these too.

    Args:
        paths: where each image is; empty for a training on features.
        vectors: the features that are given; None for a training on images.
        on_note: called with what was found.
    """
    stated, rows = selection.groups, np.sort(selection.used)
    if settings.group is not None:
        alone = len(rows) - stated.part(rows).images
        on_note(f"{describe(stated.part(rows), settings.group)}; {count(alone, 'image')} alone")
    if settings.split_duplicates:
        return stated
    files = [paths[int(row)] for row in rows] if paths else []
    table = selection.table.subset(rows)
    duplicates = near_duplicates(table, files, vectors, settings, execution, on_note)
    return stated.joined(duplicates.among(rows, len(stated)))


def near_duplicates(
    table: LabelTable,
    files: list[ImageFile],
    vectors: VectorFile | None,
    settings: Settings,
    execution: Execution,
    on_note: Callable[[str], object],
) -> Groups:
    """The near-duplicates among the images of a table.

    Args:
        files: where each image is; none for a training on features.
        vectors, settings, execution, on_note: as in :func:`with_near_duplicates`.
    """
    duplicates, remark = equal_files(files) if files else Groups.none(len(table)), ""
    has_features = vectors is not None or _has_features(settings)
    if has_features and len(table) > MOST:
        remark = TOO_MANY  # their features would not fit into memory either
    elif has_features and len(table) > 1:
        features, readable = _mean_features(table, files, vectors, settings, execution)
        similar, remark = similar_images(features)
        duplicates = duplicates.joined(similar.among(readable, len(table)))
    if duplicates.groups:
        remark = f" ({remark})" if remark else ""
        on_note(f"{describe(duplicates, 'near-duplicates')}{remark}")
    elif remark:
        on_note(remark)
    return duplicates


def _has_features(settings: Settings) -> bool:
    """Whether the training uses the features of a network that has learned from other images."""
    return settings.frozen == "all" and settings.start is None and settings.weights != "none"


def _mean_features(
    table: LabelTable,
    paths: list[ImageFile],
    vectors: VectorFile | None,
    settings: Settings,
    execution: Execution,
) -> tuple[Floats, Rows]:
    """The mean features [m, D] of readable images, and their rows; cached for the training."""
    inputs: InputSource
    if vectors is not None:
        inputs = Embeddings(vectors, vectors.locate(table.ids))
    else:
        auto = settings.method == AUTO
        plain = {
            "method": FEATURES_ONLY if auto else settings.method,
            "reduce": None,
            "own_classes": None,
        }
        torch.manual_seed(key(settings.seed, "init"))  # the same network as that of the training
        whole = settings.model_copy(update=plain)
        model, _ = build(whole, list(table.classes), pretrained=True)
        model.to(find_device(execution.device))
        keep_maps = auto or settings.reduce is not None
        inputs = make_inputs(
            model, table, paths, whole, execution, lambda message: None, keep_maps=keep_maps
        )
    held = hold(inputs, len(table), lambda maps: maps.mean(dim=(2, 3)))
    readable = np.flatnonzero(held.readable)
    return held.features.numpy()[held.place[readable]], readable


def warn_of_leaks(selection: Selection) -> None:
    """Warn if splits that the user gave separate images that belong together."""
    first = selection.groups.first
    shared = np.isin(first[selection.train], first[np.r_[selection.val, selection.reserved]])
    if shared.any():
        warnings.warn(
            f"{count(int(shared.sum()), 'training image')} belong together with validation images "
            "(near-duplicates, or --group), so that the validation is too good; put them into one "
            "split",
            PartlabelWarning,
            stacklevel=3,
        )
