"""The Python interface: the functions behind the commands, with the same words and defaults.

A run can be given as the folder that ``train`` wrote, or as the :class:`Run` that it returned.
"""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

from partlabel.base.errors import InputError, PartlabelWarning, one_of
from partlabel.images.folder import list_images
from partlabel.judging import scoring
from partlabel.judging.completion import Completion, check_precision, complete_run
from partlabel.judging.completion.more_images import holds_images_of
from partlabel.judging.completion.plan import Plan, make_plan
from partlabel.judging.suggestion import Goal, Suggestions, Unit, suggest_run
from partlabel.judging.suggestion.filling import FilledIn, fill_in
from partlabel.labels import LabelTable
from partlabel.labels.formats import ReadKeywords, ReadOptions, read_options, read_with
from partlabel.labels.formats.boxes import read_boxes
from partlabel.learning.teachers import read_teacher
from partlabel.metrics import Evaluation
from partlabel.models.features.vector_files import VectorFile
from partlabel.models.features.vector_writing import check_target, write_vectors
from partlabel.output.bench import Benchmark, read_spec, run_spec
from partlabel.output.bench.own_labels import spec_for
from partlabel.output.export import Exported, ExportOptions, export_run
from partlabel.output.report import build_report
from partlabel.training.arguments import make_settings
from partlabel.training.embed import embed_images
from partlabel.training.embedded import open_vectors
from partlabel.training.run import Run, load
from partlabel.training.settings import Execution
from partlabel.training.train import train

__all__ = [
    "bench",
    "complete",
    "embed",
    "evaluate",
    "export",
    "fill",
    "load",
    "plan",
    "predict",
    "report",
    "suggest",
    "train",
]

PathLike = str | os.PathLike[str]
Labels = LabelTable | PathLike


def embed(
    images: PathLike | Sequence[PathLike],
    out: PathLike,
    *,
    backbone: str | None = None,
    weights: str | None = None,
    size: int | None = None,
    workers: int | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> VectorFile:
    """Write the features of images to a file that ``train(features=...)`` reads.

    Args:
        images: image files, or folders of images. The id of an image is its path in its folder.
        out: the .npy, .npz, .safetensors, .parquet or .arrow file to write.
        backbone, weights, size: the network, as in :func:`train`; None for the defaults.
        workers: processes that decode images; None for a number that suits this computer.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.
    """
    path = Path(out)
    check_target(path)
    settings = {"backbone": backbone, "weights": weights, "size": size}
    network = make_settings(
        method="bce", frozen="all", **{k: v for k, v in settings.items() if v is not None}
    )
    execution = Execution(
        workers=workers, cache=None if cache is None else Path(cache), device=device or "auto"
    )
    single = isinstance(images, str | os.PathLike)
    paths = [Path(images)] if single else [Path(image) for image in images]  # type: ignore[union-attr,arg-type]
    files, nameless = list_images(paths)
    embedded = embed_images(files, network, execution)
    for message in [*nameless, *embedded.broken]:
        _warn(f"left out: {message}")
    write_vectors(path, embedded.vectors, embedded.ids)
    return VectorFile(path)


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
        raise InputError("name a label file to measure on, or --reserved (reserved=True)")
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
    opened = _open(
        run, images if reserved else None, cache, device, features, feature_ids, teachers
    )
    default = 0.5 if threshold is None else threshold
    thresholds = scoring.own_thresholds(opened) if own_thresholds else default
    if labels is None:
        return scoring.evaluate_reserved(opened, thresholds)
    table = _read(labels, options)
    table = table if split is None else table.split(split)
    if estimates:
        return scoring.evaluate_estimates(opened, table, default)
    folder = None if images is None else Path(images)
    result = scoring.evaluate_run(opened, table, folder, thresholds)
    known = scoring.trained_on(opened, table, folder)
    if known:
        _warn(
            f"{known:,} of {len(table):,} images were trained on, so the figures are too good; "
            "measure on other images with --split, or with --reserved"
        )
    return result


def predict(
    run: Run | PathLike,
    images: PathLike | Sequence[PathLike] | None = None,
    *,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    teachers: Sequence[PathLike] = (),
    threshold: float | None = None,
    device: str | None = None,
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
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.
    """
    _check_threshold(threshold)
    if (images is None) == (features is None):
        raise InputError("name images, or a file with --features")
    opened = _open(run, None, None, device, features, feature_ids, teachers)
    if images is None:
        return scoring.label_features(opened, threshold)
    single = isinstance(images, str | os.PathLike)
    paths = [Path(images)] if single else [Path(image) for image in images]  # type: ignore[union-attr,arg-type]
    table, broken = scoring.label_files(opened, paths, threshold)
    for message in broken:
        _warn(f"left out: {message}")
    return table


def complete(
    run: Run | PathLike,
    *,
    min_precision: float = 0.95,
    guarantee: Literal["class", "pooled", "exact", "cross"] | None = None,
    images: PathLike | None = None,
    only_labelled: bool = False,
    despite_shift: bool = False,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> Completion:
    """Fill in the unknown labels of a run's own label file; known labels are never changed.

    A label is filled in only where labels that were reserved in training show, with a confidence of
    95%, that this share of such labels is correct. All other labels stay unknown.

    Args:
        run: a finished run.
        min_precision: share of the labels filled in that must be correct.
        guarantee: the labels that it rests on: ``class`` for those of each class, ``pooled`` for
            those of all classes together; by default per class, and pooled for classes with too
            few labels. Or how it is tested: ``exact`` on labels that were reserved, ``cross`` on
            all known labels, with scores of models that were not trained on their images; by
            default exact if the run has reserved labels.
        images: the folder of the images; None for the run's own. Images of it that the label file
            does not mention are completed too. If it has none of the run's images, these are
            looked for where the run remembers them.
        only_labelled: leave out images that the label file does not mention.
        despite_shift: complete these images even if they are unlike the images that tested.
        features, feature_ids: for a run on features, as in :func:`train`; None for the run's own.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.

    Returns:
        The completed table and the evidence for it; ``save(path)`` writes both.
    """
    if guarantee is not None:
        one_of("guarantee", guarantee, ("class", "pooled", "exact", "cross"))
    opened, more = _open(run, None, cache, device, features, feature_ids), None
    if opened.record.features is not None:
        opened = _open(opened, images)
    else:
        if images is not None and holds_images_of(opened, Path(images)):
            opened = _open(opened, images)
        more = opened.images if images is None else Path(images)
    basis = guarantee if guarantee in ("class", "pooled") else None
    kind = guarantee if guarantee in ("exact", "cross") else None
    done = complete_run(
        opened,
        min_precision,
        basis,
        kind,
        None if only_labelled else more,
        despite_shift=despite_shift,
    )
    for note in done.notes:
        _warn(note)
    return done


def plan(run: Run | PathLike, *, min_precision: float = 0.95) -> Plan:
    """Draw images to label, so that :func:`complete` can give a guarantee after a new training.

    Args:
        run: a finished run.
        min_precision: the precision that is to be guaranteed.

    Returns:
        The images; ``describe()`` says what to do, and ``save(path)`` writes the list.
    """
    check_precision(min_precision)
    return make_plan(_open(run), min_precision)


def export(
    run: Run | PathLike,
    out: PathLike,
    to: str,
    *,
    min_precision: float = 0.95,
    tested: bool = True,
    resized: bool = False,
    overwrite: bool = False,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> Exported:
    """Write a run in the form of another tool: a model, tasks to label, a dataset.

    Args:
        run: a finished run.
        out: the file or the new folder to write.
        to: the form, one of ``partlabel.output.targets.TARGETS``, such as ``onnx``,
            ``torch-export``, ``hub``, ``label-studio``, ``hf``, ``cleanlab``, or a label format.
        min_precision: share of the decisions of a model, or of the labels filled in, that must be
            right.
        tested: whether decisions are tested on the reserved labels of the run. That needs its
            images or features. Without the test there is no guarantee.
        resized: for a model: images are given in the size of the run, and are not resized.
        overwrite: replace files that exist. A folder must be new or empty.
        images: the folder of the images; None for the run's own.
        features, feature_ids: for a run on features, as in :func:`train`; None for the run's own.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one. It is used for the
            test; what is written does not depend on a device.

    Returns:
        The paths that were written, and notes about them.
    """
    opened = _open(run, images, cache, device, features, feature_ids)
    options = ExportOptions(min_precision, tested, resized, overwrite)
    return export_run(opened, Path(out), to, options)


def suggest(
    run: Run | PathLike,
    budget: int,
    *,
    per: Unit = "cell",
    goal: Goal = "map",
    strategy: str = "information",
    cost: float | None = None,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> Suggestions:
    """Choose the labels that people should be asked for next.

    Only labels of training images are asked for. Merge the answers into the labels, and train
    again. Answers to questions drawn at random are not trained on: they test what the run that
    asked them would fill in.

    Args:
        run: a finished run.
        budget: number of questions: cells (an image and a class), or images.
        per: ``cell``, or ``image`` for all unknown labels of whole images.
        goal: what the answers are for. ``map``: a better classifier, where all classes count the
            same. ``promises``: more present labels that can be filled in with a guarantee; some
            questions are then drawn at random. ``errors``: known labels that may be wrong.
        strategy: how questions are chosen: ``information``, ``random``, ``entropy``, ``margin`` or
            ``most-likely-present``.
        cost: seconds of work per question; None for 2 per cell and 10 per image.
        images: the folder of the images; None for the run's own.
        features, feature_ids: for a run on features, as in :func:`train`; None for the run's own.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.

    Returns:
        The questions; ``save(path)`` writes them.
    """
    opened = _open(run, images, cache, device, features, feature_ids)
    result = suggest_run(opened, budget, per=per, goal=goal, strategy=strategy, cost=cost)
    for note in result.notes:
        _warn(note)
    return result


def fill(
    run: Run | PathLike,
    answers: Labels,
    *,
    min_precision: float = 0.95,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> FilledIn:
    """Fill in present labels where answers to questions drawn at random show that they are right.

    Args:
        run: the run that asked, see :func:`suggest` with ``goal="promises"``.
        answers: the answers to its questions, as a table or a label file.
        min_precision: share of the labels filled in that must be correct.
        images: the folder of the images; None for the run's own.
        features, feature_ids: for a run on features, as in :func:`train`; None for the run's own.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.

    Returns:
        The labels of the run with the answers and the labels filled in, and what was shown.
    """
    opened = _open(run, images, cache, device, features, feature_ids)
    return fill_in(opened, _read(answers, ReadOptions()), min_precision)


def report(
    run: Run | PathLike,
    *,
    truth: Labels | None = None,
    baseline: Run | PathLike | None = None,
    boxes: PathLike | None = None,
    min_precision: float = 0.95,
    landscape: bool = False,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
    reading: ReadOptions | None = None,
    **keywords: Unpack[ReadKeywords],
) -> Path:
    """Write ``report.html`` into the folder of a run, one file to send around; returns its path.

    Args:
        run: a finished run.
        truth: more of the true labels, to show how unknown labels were predicted.
        baseline: another run on the same labels to compare with.
        boxes: a file of boxes, to show whether class maps are highest on objects.
        min_precision: the precision that ``complete`` is to guarantee, in the section about it.
        landscape: also draw the loss around the trained weights.
        images: the folder of the images; None for the run's own. The report of a run on features
            shows them too.
        features, feature_ids: for a run on features, as in :func:`train`; None for the run's own.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.
        reading: how to read ``truth``, see :class:`ReadOptions`.
        keywords: the fields of ``reading``, in its place: ``unlisted="unknown"``.
    """
    options = read_options(reading, dict(keywords))
    if truth is None and options != ReadOptions():
        raise InputError("options for reading labels have no effect without --truth")
    others = (images, cache, device, features, feature_ids)
    return build_report(
        _open(run, *others),
        truth=None if truth is None else _read(truth, options),
        baseline=None if baseline is None else _open(baseline, *others),
        boxes=None if boxes is None else read_boxes(Path(boxes)),
        landscape=landscape,
        precision=min_precision,
    )


def bench(
    spec: PathLike | None,
    out: PathLike,
    *,
    jobs: int = 1,
    resume: bool = False,
    labels: PathLike | None = None,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    reading: ReadOptions | None = None,
    **keywords: Unpack[ReadKeywords],
) -> Benchmark:
    """Compare methods on the same labels, with the same tuning on validation labels.

    Args:
        spec: a YAML file that says what to compare; None for methods that suit the labels.
        out: the folder of runs and results.
        jobs: trainings at a time; they share the cores.
        resume: continue; finished trainings are kept.
        labels, images: a label file and a folder of images, instead of those of the spec.
        features, feature_ids: features instead of images, as in :func:`train`.
        cache: folder of cached features.
        reading: how to read the labels, see :class:`ReadOptions`; instead of what the spec states.
        keywords: the fields of ``reading``, in its place: ``unlisted="unknown"``.
    """
    folder = Path(out)
    options = read_options(reading, dict(keywords))
    if folder.is_dir() and any(folder.iterdir()) and not resume:
        raise InputError(f"{folder}: is not empty; add --resume to go on, or name another")
    if spec is None:
        compared = spec_for(labels, images, features, feature_ids, options)
    else:
        compared = read_spec(Path(spec), labels, images, features, feature_ids, options)
    return run_spec(compared, folder, jobs, cache)


def _check_threshold(threshold: float | None) -> None:
    if threshold is not None and not 0 <= threshold <= 1:
        raise InputError(f"threshold {threshold:g}: must be from 0 to 1, such as 0.5 for 50%")


def _open(
    run: Run | PathLike,
    images: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    teachers: Sequence[PathLike] = (),
) -> Run:
    """A run, with other images, features or scores, another cache or device if these are given."""
    vectors = open_vectors(features, feature_ids)
    scores = [read_teacher(Path(path)) for path in teachers]
    changes: dict[str, Any] = {}
    if cache is not None:
        changes["cache"] = Path(cache)
    if device is not None:
        changes["device"] = device
    if not isinstance(run, Run):
        return Run(run, images, Execution(**changes), vectors, scores)
    if images is None and vectors is None and not scores and not changes:
        return run
    return run.using(images, run.execution.model_copy(update=changes), vectors, scores)


def _read(labels: Labels, options: ReadOptions) -> LabelTable:
    return labels if isinstance(labels, LabelTable) else read_with(labels, options).table


def _warn(message: str) -> None:
    warnings.warn(message, PartlabelWarning, stacklevel=3)
