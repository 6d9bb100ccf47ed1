"""Labels and scores of a run for new images, or for given features."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError, InputError, some
from partlabel.images.folder import escaped
from partlabel.images.named_images import list_images
from partlabel.judging.scoring import (
    Scored,
    Scores,
    filled_table,
    model_on_device,
    own_thresholds,
    score,
    score_inputs,
)
from partlabel.labels import LabelTable
from partlabel.models.prediction import InputSource
from partlabel.training.embedded import with_evidence
from partlabel.training.inputs import caches_means, make_inputs, make_pictures
from partlabel.training.run import Run

Decide = Callable[[Scores], NDArray[np.int8]]


def label_files(
    run: Run, images: Sequence[Path], threshold: float | None = None, decide: Decide | None = None
) -> tuple[LabelTable, list[str]]:
    """Labels and scores for images, and messages of broken ones.

    Features are cached if that hardly changes scores, and for the answers of ``decide``, which were
    tested on cached ones.

    Args:
        images: image files, or folders, shards and lists of images.
        threshold: a class is present from this score on; None for the run's own thresholds, one per
            class, chosen on validation labels.
        decide: gives the values [n, C] for scores [n, C] of the network, in place of a threshold.
    """
    if run.record.features is not None:
        raise FileError(
            run.folder, "was trained on features; name a file of features with --features"
        )
    paths, nameless = list_images(images)
    if not paths:
        reason = f" ({nameless[0]})" if nameless else ""
        raise InputError(f"there are no images to predict in {some(map(escaped, images))}{reason}")
    table, settings = _blank_table(run, list(paths)), run.settings
    model, files, broken = model_on_device(run), list(paths.values()), nameless
    inputs: InputSource
    if run.record.teachers or decide is not None or caches_means(model, settings):
        maps = make_inputs(model, table, files, settings, run.execution, broken.append)
        inputs = with_evidence(run, table, maps)
    else:
        inputs = make_pictures(model.backbone, table, files, settings.seed)
    scored = score_inputs(run, model, table, inputs, broken)
    return _labelled(run, scored, threshold, decide), scored.broken


def label_features(
    run: Run, threshold: float | None = None, decide: Decide | None = None
) -> LabelTable:
    """Labels and scores for all vectors of a run's file of features, as :func:`label_files`."""
    assert run.features is not None
    table = _blank_table(run, run.features.ids)
    return _labelled(run, score(run, table), threshold, decide)


def _blank_table(run: Run, ids: Sequence[str]) -> LabelTable:
    classes = run.record.classes
    return LabelTable(ids, classes, np.zeros((len(ids), len(classes)), dtype=np.int8))


def _labelled(
    run: Run, scored: Scored, threshold: float | None, decide: Decide | None
) -> LabelTable:
    """Values by the run's own thresholds, or by one for all; scores are calibrated if they can be.

    The run's own thresholds are scores of the network. One that is given is compared with the
    scores that are shown.
    """
    record, calibrated = run.record.calibration, scored
    if record is not None:
        calibrated = Scored(scored.table, record.open().probabilities(scored.scores), scored.broken)
    if decide is not None:
        return filled_table(calibrated, decide(scored.scores))
    if threshold is None:
        present = scored.scores >= own_thresholds(run)
    else:
        present = calibrated.scores >= threshold
    return filled_table(calibrated, np.where(present, 1, -1).astype(np.int8))
