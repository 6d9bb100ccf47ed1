"""From labels and images to a trained run: everything around the loop."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from partlabel.base.allocation import give_back_memory
from partlabel.base.errors import FileError, InputError, count, some
from partlabel.base.randomness import key
from partlabel.images.batches import in_batches
from partlabel.images.folder import ImageFiles
from partlabel.labels import LabelTable
from partlabel.labels.formats import ReadOptions, read_options, read_with
from partlabel.learning.extensions import HasMembers
from partlabel.learning.methods import Method
from partlabel.learning.teachers import TeacherScores, read_teacher, refuse_overlap
from partlabel.metrics.calibration import balanced_thresholds
from partlabel.models import Backbone, Classifier, Reduction
from partlabel.models.compilation import compile_backbone
from partlabel.models.features.evidence_inputs import EvidenceInputs
from partlabel.models.heads import WithEvidence
from partlabel.models.prediction import InputSource, collect_scores
from partlabel.training.arguments import make_settings, override, read_config
from partlabel.training.auto.automatic import fit_members, sweep_trials
from partlabel.training.checkpoint import save_state
from partlabel.training.devices import find_device, make_fabric
from partlabel.training.embedded import (
    describe_evidence,
    embedded_inputs,
    for_features,
    open_vectors,
)
from partlabel.training.examples import Examples
from partlabel.training.inputs import bank_for, make_inputs
from partlabel.training.monitor import Monitor, need_tensorboard, watch
from partlabel.training.progress import Progress
from partlabel.training.run import (
    FeaturesRecord,
    Location,
    Record,
    Run,
    TeacherRecord,
    file_hash,
    make_task,
    weights_hash,
)
from partlabel.training.run_folder import check_same, open_folder
from partlabel.training.selection import (
    Selection,
    by_humans,
    find_files,
    has_both_kinds,
    select,
)
from partlabel.training.settings import AUTO, Execution, Settings
from partlabel.training.start import start_from
from partlabel.training.trainer import Trainer

_FITTED = 2000  # images that the reduction of features is fitted on


def train(
    labels: LabelTable | str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    features: str | os.PathLike[str] | None = None,
    feature_ids: str | os.PathLike[str] | None = None,
    teachers: Sequence[str | os.PathLike[str]] = (),
    resume: bool = False,
    config: str | os.PathLike[str] | None = None,
    reading: ReadOptions | None = None,
    **settings: Any,
) -> Run:
    """Train a classifier on the labels that are known.

    Args:
        labels: a table, or a label file.
        images: the folder of the images; with ``features``, only to show them in reports.
        out: the folder of the run; must not exist, or be empty.
        features: a file with a vector per image, to train on instead of images: .npy, .npz,
            .safetensors, .parquet or .arrow.
        feature_ids: a file with the id of each vector, if they are not in the file itself.
        teachers: files with scores of other models for images and classes. They are evidence, and
            never labels: each class learns how much weight they deserve.
        resume: continue a run that was stopped; a finished one is returned as it is.
        config: a YAML file with settings; those given here win.
        reading: how to read a label file; its fields can also be given as keyword arguments
            (``unlisted="unknown"``), see :class:`ReadOptions`.
        settings: any field of :class:`Settings` (``method="em"``, ``frozen="all"``, ``lr=1e-3``) or
            :class:`Execution` (``device``, ``compile``, ``cache``, ``workers``, ``cache_pixels``,
            ``strict``, ``tensorboard``).

    Returns:
        The run; ``partlabel.load(out)`` gives its classifier.
    """
    if out is None:
        raise InputError("name the folder of the run: out='run'")
    options = read_options(reading, settings)
    if config is not None:
        settings = override(read_config(Path(config)), settings)
    execution = _execution(settings)
    vectors = open_vectors(features, feature_ids)
    chosen = make_settings(**for_features(settings, given=vectors is not None))
    if execution.cache_pixels and chosen.frozen != "nothing":
        raise InputError("--cache-pixels has no effect with --frozen or --unfreeze last")
    if teachers and chosen.method == AUTO:
        raise InputError("--teacher has no effect with --method auto; name another --method")
    if execution.compile and vectors is not None:
        raise InputError("--compile has no effect with --features: there is no network")
    find_device(execution.device)  # refused before anything is read or written
    if execution.tensorboard:
        need_tensorboard()
    table = labels if isinstance(labels, LabelTable) else read_with(labels, options).table
    digest, files = _digest(table), None if images is None else ImageFiles(images)
    run = Run(out, images, execution, vectors, [read_teacher(Path(path)) for path in teachers])
    going_on = resume and run.exists()
    if going_on:
        check_same(run, chosen, digest)
    selection = run.selection if going_on else select(table, chosen)
    refuse_overlap([one.for_classes(selection.classes) for one in run.given_teachers])
    notes: list[str] = []
    paths: dict[int, Path] = {}
    if vectors is not None:
        vectors.check(vectors.locate(selection.table.ids.take(selection.used)))
    elif files is not None:
        paths = find_files(
            selection.table, files, selection.used, strict=execution.strict, on_note=notes.append
        )
    else:
        raise InputError("name the folder of the images with --images, or a file with --features")
    where = None if files is None else Location.of(files.folder, run.folder)
    with open_folder(run, chosen, digest, resume=resume) as finished:
        if not finished and run.exists():
            record = run.record.model_copy(update={"images": where})
            _train_into(run, record, selection, paths, notes)
        elif not finished:
            record = _new_record(run, chosen, selection, where, digest)
            _train_into(run, record, selection, paths, notes)
    return run


def _new_record(
    run: Run, settings: Settings, selection: Selection, images: Location | None, digest: str
) -> Record:
    vectors = run.given_features
    return Record(
        settings=settings,
        images=images,
        features=None if vectors is None else FeaturesRecord.of(vectors, run.folder),
        teachers=[TeacherRecord(name=t.path.name, digest=t.digest) for t in run.given_teachers],
        classes=selection.classes,
        side=selection.side,
        labels=digest,
        labels_file="",  # known once it is written
        weights_file=weights_hash(settings),
        train_rows=len(selection.train),
        val_rows=len(selection.val),
        reserved_rows=len(selection.reserved),
    )


def _train_into(
    run: Run, record: Record, selection: Selection, paths: dict[int, Path], notes: list[str]
) -> None:
    """Train, or go on with a training, in the folder of a run; ``notes`` are logged first."""
    settings, started = record.settings, run.exists()
    torch.manual_seed(key(settings.seed, "init"))
    model, method = _build(run, record)
    if settings.method != AUTO:
        method.prepare(make_task(selection, settings, run.folder))  # may raise: nothing is written
        run.keep_inputs(settings)
    if not started:
        selection.labels.save(run.folder / "labels.arrow")
        selection.save(run.folder / "split.safetensors")
        run.keep_teachers(record.classes)
        labels_hash = file_hash(run.folder / "labels.arrow")
        record = record.model_copy(update={"labels_file": labels_hash})
    run.write(record)
    with watch(run, tensorboard=run.execution.tensorboard) as monitor:
        monitor.note(_describe(selection))
        for note in notes:
            monitor.note(note)
        if settings.method == AUTO:
            _fit_members(run, record, model, selection, paths, monitor)
            return
        if len(selection.val) and not has_both_kinds(selection.validation):
            monitor.warn(
                "the validation labels are all of one kind, so there is no mAP, no threshold and "
                "no completion. Label a few hundred images for all classes, in a split 'holdout'; "
                "or train on all images with --val 0"
            )
        _fit(run, record, model, method, selection, paths, monitor)
    give_back_memory()


def _build(run: Run, record: Record) -> tuple[Classifier, Method]:
    """A new model; its frozen part is the run's own, once the run has kept it."""
    kept, frozen = run.frozen_weights(), record.settings.frozen
    needs_file = not kept or frozen != "all"
    if needs_file and weights_hash(record.settings) != record.weights_file:
        raise FileError(record.settings.weights, f"has changed since {run.folder} was started")
    model, method = run.build(record, pretrained=needs_file)
    if kept:
        run.load_frozen(model)
    if record.settings.start is not None:
        start_from(record.settings.start, model, record)
    return model, method


def _execution(settings: dict[str, Any]) -> Execution:
    """Take the arguments that say how to carry out a training out of the others."""
    names = [name for name in settings if name in Execution.model_fields]
    try:
        return Execution(**{name: settings.pop(name) for name in names})
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{first['loc'][0]} = {first.get('input')!r}: {first['msg']}") from None


def _fit(
    run: Run,
    record: Record,
    model: Classifier,
    method: Method,
    selection: Selection,
    paths: dict[int, Path],
    monitor: Monitor,
) -> None:
    """Train the model and write the outcome."""
    settings, execution = record.settings, run.execution
    fabric = make_fabric(execution.device, settings.precision)
    model.to(fabric.device)
    if execution.compile:
        compile_backbone(model.backbone)
    rows, train_images = np.concatenate([selection.train, selection.val]), len(selection.train)
    table = selection.table.subset(rows)
    broken: list[str] = []
    keep = partial(_keep_backbone, run, model.backbone, train_images)
    inputs: InputSource
    if run.features is not None:
        inputs = embedded_inputs(model, table, run.features, on_maps=keep)
    else:
        inputs = make_inputs(
            model,
            table,
            [paths[int(row)] for row in rows],
            settings,
            execution,
            broken.append,
            bank=bank_for(settings, method, train_images),
            on_note=monitor.note,
            on_maps=keep,
        )
    truth = by_humans(table)
    if record.teachers:
        evidence = TeacherScores(run.teachers, table)
        _standardise(model, evidence, table.subset(np.arange(train_images)))
        monitor.note(describe_evidence(evidence, len(rows)))
        inputs = EvidenceInputs(inputs, evidence)
    for message in broken:
        monitor.warn(f"left out: {message}")
    examples = (
        Examples(table, inputs, np.arange(train_images)),
        Examples(truth, inputs, np.arange(train_images, len(rows))),
    )
    members = [
        Trainer(
            *member,
            *examples,
            own.settings,
            home.checkpoint,
            monitor.member(home),
            workers=execution.workers,
            fabric=make_fabric(execution.device, settings.precision),
        )
        for member, own, home in _other_members(run, record, method, model)
    ]
    trainer = Trainer(
        model,
        method,
        *examples,
        settings,
        run.checkpoint,
        monitor,
        members,
        execution.workers,
        fabric,
    )
    progress = trainer.fit()
    run.write_log(progress.history)
    _note_wasted_epochs(progress, len(trainer.stages), monitor)
    save_state(run.folder / "best.safetensors", model.trained_weights())
    scores, judged = collect_scores(trainer.logits_of(model, trainer.val_set))
    thresholds = balanced_thresholds(scores, truth.dense(judged)).tolist() if len(judged) else []
    outcome = {
        "finished": True,
        "broken": broken + [trainer.broken[row] for row in sorted(trainer.broken)],
        "best_epoch": progress.best_epoch + 1,
        "best_val_mAP": progress.best if np.isfinite(progress.best) else None,
        "thresholds": [None if np.isnan(value) else value for value in thresholds],
    }
    run.write(record.model_copy(update=outcome))


def _fit_members(
    run: Run,
    record: Record,
    model: Classifier,
    selection: Selection,
    paths: dict[int, Path],
    monitor: Monitor,
) -> None:
    """Train the members that ``auto`` chooses, and write the outcome."""
    rows, train_images = np.concatenate([selection.train, selection.val]), len(selection.train)
    table = selection.table.subset(rows)
    broken: list[str] = []
    keep = partial(_keep_backbone, run, model.backbone, train_images)
    inputs: InputSource
    model.to(find_device(run.execution.device))
    if run.features is not None:
        inputs = embedded_inputs(model, table, run.features, on_maps=keep)
    else:
        inputs = make_inputs(
            model,
            table,
            [paths[int(row)] for row in rows],
            record.settings,
            run.execution,
            broken.append,
            on_note=monitor.note,
            on_maps=keep,
            keep_maps=True,
        )
    for message in broken:
        monitor.warn(f"left out: {message}")
    record = fit_members(run, record, model, selection, inputs, monitor)
    run.write(record.model_copy(update={"broken": broken}))
    sweep_trials(run.folder)


def _standardise(model: Classifier, scores: TeacherScores, training: LabelTable) -> None:
    """Set the scale of the scores of teachers, as they are on the training images."""
    if isinstance(model.head, WithEvidence):
        mean, deviation = scores.statistics(np.arange(len(training)))
        known = int(np.count_nonzero(training.cells.values))
        model.head.standardise(torch.from_numpy(mean), torch.from_numpy(deviation), known)


def _note_wasted_epochs(progress: Progress, stages: int, monitor: Monitor) -> None:
    """Say so if later stages, or pseudo-labels, came after the epoch that is kept."""
    kept = progress.best_epoch + 1
    stage = next((line["stage"] for line in progress.history if line["epoch"] == kept), 0)
    if 0 < stage < stages:
        monitor.note(
            f"epoch {kept}, of stage {stage} of {stages}, was the best and is kept: what came "
            "after had no effect on the model. --keep best keeps the best of the last stage"
        )
    rounds = [line["epoch"] for line in progress.history if "pseudo_labels" in line]
    if rounds and kept < rounds[0]:
        monitor.note(
            f"epoch {kept} was the best and is kept, and pseudo-labels came before epoch "
            f"{rounds[0]}: they had no effect on the model. --keep last keeps the last epoch"
        )


def _other_members(
    run: Run, record: Record, leader: Method, first: Classifier
) -> Iterator[tuple[tuple[Classifier, Method], Record, Run]]:
    """The members of an ensemble beside the first, each with its own folder in the run's."""
    if not isinstance(leader, HasMembers):
        return
    for number in range(2, leader.members + 1):
        seed = key(record.settings.seed, "member", number)
        settings = record.settings.model_copy(update={"seed": seed})
        torch.manual_seed(key(seed, "init"))
        own = record.model_copy(update={"settings": settings})
        model, method = _build(run, own)
        assert isinstance(method, HasMembers)
        if isinstance(model.head, WithEvidence) and isinstance(first.head, WithEvidence):
            model.head.standardise(first.head.mean, first.head.deviation, int(first.head.labels))
        method.follow(leader)
        home = Run(run.folder / "members" / str(number))
        home.folder.mkdir(parents=True, exist_ok=True)
        yield (model, method), own, home


def _describe(selection: Selection) -> str:
    """What is trained and validated on, and what is left out."""
    labels, table = selection.labels, selection.table
    text = f"training on {count(len(selection.train), 'image')}, "
    text += f"validating on {count(len(selection.val), 'image')}"
    labelled = int(np.count_nonzero(np.diff(selection.validation.cells.starts)))
    if labelled < len(selection.val):
        text += f" ({labelled:,} with a known label)"
    if len(selection.reserved):
        text += f", reserving {len(selection.reserved):,} to test the guarantees of `complete`"
    if table.splits is not None:
        used = set(table.splits.take(selection.used))
        unused = sorted({name for name in table.splits if name} - used)
        text += f"; not used: split {some(unused)}" if unused else ""
        without = sum(not name for name in table.splits) if "" not in used else 0
        text += f"; not used: {count(without, 'image')} without a split" if without else ""
    side = selection.side or []
    text += f"; side information: {count(len(side), 'class', 'classes')}" if side else ""
    dropped = [name for name in labels.classes if name not in {*table.classes, *side}]
    return text + (f"; classes left out: {some(dropped, 20)}" if dropped else "")


def _digest(table: LabelTable) -> str:
    """A hash of the content of a table."""
    digest = hashlib.blake2b(digest_size=16)
    parts: list[Iterable[str]] = [table.ids, table.classes, table.splits or []]
    for names in parts:
        digest.update("\x1f".join(names).encode())
    cells = table.cells
    for array in (cells.starts, cells.columns, cells.values, cells.sources_or_human()):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _keep_backbone(run: Run, backbone: Backbone, images: int, maps: InputSource) -> None:
    """Fit the reduction on training images and save the frozen part, unless the run has it."""
    if run.frozen_weights():
        return
    if isinstance(backbone.reduction, Reduction):
        sample = np.unique(np.linspace(0, images - 1, min(images, _FITTED)).astype(np.int64))
        parts = maps.batches(in_batches(sample, 64), ("clean",))
        backbone.reduction.fit(part.views["clean"] for part in parts)
    save_state(run.folder / "backbone.safetensors", backbone.frozen_state())
