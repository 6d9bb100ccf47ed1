"""What a run says about images: its figures on known labels, and labels for new images.

These are ``partlabel.evaluate`` and ``partlabel.predict``. A run can be given as the folder that
``train`` wrote, or as the :class:`Run` that it returned.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

from partlabel.base import processes
from partlabel.base.errors import InputError, warn
from partlabel.judging import predicted_labels, scoring
from partlabel.judging.decisions import final_decisions
from partlabel.labels import LabelTable
from partlabel.labels.formats import PathLike, ReadKeywords, ReadOptions, read_options
from partlabel.metrics import Evaluation
from partlabel.training.opening import Labels, open_run, paths_of, table_of
from partlabel.training.run import Run


@processes.together()
def evaluate(
    run: Run | PathLike,
    labels: Labels | None = None,
    images: PathLike | None = None,
    *,
    reserved: bool = False,
    estimates: bool = False,
    split: str | None = None,
    threshold: float | None = None,
    own_thresholds: bool = False,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    teachers: Sequence[PathLike] = (),
    cache: PathLike | None = None,
    device: str | None = None,
    reading: ReadOptions | None = None,
    **keywords: Unpack[ReadKeywords],
) -> Evaluation:
    """Measure a run on known labels. Labels that a model filled in are left out.

    Args:
        run: a finished run.
        labels: the labels to measure on; not needed with ``reserved``.
        images: the folder of the images; None for the run's own.
        reserved: measure on the run's reserved validation images, which nothing was chosen on.
        estimates: measure the method's own estimates of its training labels (``role``), not the
            classifier.
        split: measure on this split only.
        threshold: a class is predicted from this score on; 0.5 by default.
        own_thresholds: use the run's own thresholds, one per class, as ``predict`` does.
        features, feature_ids: for a run on features, as in :func:`train`; None for the run's own.
        teachers: scores of the run's teachers for these images, in the order of the training; none
            for the scores that the run keeps.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.
        reading: how to read a label file, see :class:`ReadOptions`.
        keywords: the fields of ``reading``, in its place: ``unlisted="unknown"``.
    """
    options = read_options(reading, dict(keywords))
    if reserved == (labels is not None):
        raise InputError("name a label file to measure on, or --reserved")
    if reserved and (split is not None or estimates or options != ReadOptions()):
        raise InputError(
            "--split, --estimates and options for reading labels have no effect with --reserved"
        )
    others = (images, features, cache, device)
    if estimates and (teachers or any(value is not None for value in others)):
        raise InputError(
            "--images, --features, --teacher, --cache and --device have no effect with --estimates"
        )
    _check_threshold(threshold)
    if own_thresholds and (estimates or threshold is not None):
        raise InputError("--own-thresholds excludes --threshold and --estimates")
    opened = open_run(
        run, images if reserved else None, cache, device, features, feature_ids, teachers
    )
    opened.finished_record()  # otherwise a message could be about labels, not about the run
    default = 0.5 if threshold is None else threshold
    thresholds = scoring.own_thresholds(opened) if own_thresholds else default
    if labels is None:
        return scoring.evaluate_reserved(opened, thresholds)
    table = table_of(labels, options)
    table = table if split is None else table.split(split)
    if estimates:
        return scoring.evaluate_estimates(opened, table, default)
    folder = None if images is None else Path(images)
    result = scoring.evaluate_run(opened, table, folder, thresholds)
    known = scoring.trained_on(opened, table, folder)
    if known:
        warn(
            f"{known:,} of {len(table):,} images were trained on, so the figures are too good; "
            "measure on other images with --split, or with --reserved"
        )
    return result


@processes.together()
def predict(
    run: Run | PathLike,
    images: PathLike | Sequence[PathLike] | None = None,
    *,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    teachers: Sequence[PathLike] = (),
    threshold: float | None = None,
    abstain: bool = False,
    min_precision: float | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
    on_note: Callable[[str], object] = lambda message: None,
) -> LabelTable:
    """Label images with a run: a value and a score for each class.

    Args:
        run: a finished run.
        images: image files, or folders of images; for a run on features leave them out.
        features, feature_ids: for a run on features, a file with a vector per image, as in
            :func:`train`.
        teachers: scores of the run's teachers for these images, in the order of the training.
        threshold: a class is present from this score on; by default the run's own thresholds, one
            per class, chosen on validation labels.
        abstain: answer present or absent only where the labels that the run reserved show that
            enough such answers are right, and otherwise leave a label unknown. It needs the images
            or features of the run. If nothing was tested, a warning says so.
        min_precision: share of the answers that must be right with ``abstain``; None for 0.95.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.
        on_note: called with what is guaranteed of the answers.
    """
    labels = predictions(
        run,
        images,
        features=features,
        feature_ids=feature_ids,
        teachers=teachers,
        threshold=threshold,
        abstain=abstain,
        min_precision=min_precision,
        cache=cache,
        device=device,
        on_note=on_note,
    )
    table = labels.whole()
    warn_of_broken(labels)
    return table


@processes.together()
def predictions(
    run: Run | PathLike,
    images: PathLike | Sequence[PathLike] | None = None,
    *,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    teachers: Sequence[PathLike] = (),
    threshold: float | None = None,
    abstain: bool = False,
    min_precision: float | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
    on_note: Callable[[str], object] = lambda message: None,
) -> predicted_labels.PredictedLabels:
    """As :func:`predict`, but labels are computed when they are asked for, and need no memory."""
    _check_threshold(threshold)
    if (images is None) == (features is None):
        raise InputError("name images, or a file with --features")
    if abstain and threshold is not None:
        raise InputError("--threshold has no effect with --abstain")
    if min_precision is not None and not abstain:
        raise InputError("--min-precision has no effect without --abstain")
    opened = open_run(run, None, cache, device, features, feature_ids, teachers)
    opened.finished_record()  # before anything is said about a guarantee
    decide = None
    if abstain:
        own = open_run(run, None, cache, device)  # with the features that the run was trained on
        decisions = final_decisions(own, 0.95 if min_precision is None else min_precision)
        decide = decisions.decide
        if decisions.guaranteed:
            on_note(decisions.describe())
        else:
            warn(decisions.describe())
    if images is None:
        return predicted_labels.predict_features(opened, threshold, decide)
    return predicted_labels.predict_files(opened, paths_of(images), threshold, decide)


def warn_of_broken(labels: predicted_labels.PredictedLabels) -> None:
    """Warn of the images that could not be read while labels were computed."""
    for message in labels.broken:
        warn(f"left out: {message}")


def _check_threshold(threshold: float | None) -> None:
    if threshold is not None and not 0 <= threshold <= 1:
        raise InputError(f"threshold {threshold:g}: must be from 0 to 1, such as 0.5 for 50%")
