"""Training into the folder of a run: model, inputs, trainers, and what is written at the end."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from partlabel.base.allocation import give_back_memory
from partlabel.base.errors import FileError, count, some
from partlabel.base.randomness import key
from partlabel.images.batches import in_batches
from partlabel.images.stored import ImageFile
from partlabel.labels import LabelTable
from partlabel.learning.extensions import HasMembers
from partlabel.learning.method import PSEUDO_LABELS
from partlabel.learning.methods import Method, Stage
from partlabel.learning.teachers import TeacherScores
from partlabel.models import Backbone, Classifier, Reduction
from partlabel.models.compilation import compile_backbone
from partlabel.models.features import Bank
from partlabel.models.features.evidence_inputs import EvidenceInputs
from partlabel.models.heads import WithEvidence
from partlabel.models.prediction import InputSource, collect_known
from partlabel.training.auto.automatic import check_contrast, check_size, fit_members, sweep_trials
from partlabel.training.checkpoint import save_state
from partlabel.training.devices import find_device, make_fabric
from partlabel.training.embedded import (
    describe_evidence,
    embedded_inputs,
    warn_of_pupils,
)
from partlabel.training.examples import Examples
from partlabel.training.inputs import bank_for, make_inputs
from partlabel.training.monitor import Monitor, watch
from partlabel.training.progress import Progress
from partlabel.training.reserving import calibrating, evidence
from partlabel.training.run import Run
from partlabel.training.run_data import make_task
from partlabel.training.run_record import (
    Record,
    decision_figures,
    file_hash,
    weights_hash,
)
from partlabel.training.run_split import (
    Selection,
    by_humans,
    has_both_kinds,
    without_drawn,
)
from partlabel.training.settings import AUTO
from partlabel.training.start import start_from
from partlabel.training.trainer import Trainer

_FITTED = 2000  # images that the reduction of features is fitted on
_NOTHING_RESERVED = (
    "no label is reserved, so all are trained on. `complete` tests its guarantee with models of "
    "folds, but `export` and `predict --abstain` have none; train with --reserve 0.2 for these"
)


def train_into(
    run: Run, record: Record, selection: Selection, paths: dict[int, ImageFile], notes: list[str]
) -> None:
    """Train, or go on with a training, in the folder of a run; ``notes`` are logged first."""
    settings, started = record.settings, run.exists()
    torch.manual_seed(key(settings.seed, "init"))
    model, method = _build(run, record)
    if settings.method == AUTO:
        check_contrast(selection)
        check_size(selection, settings, model.backbone.channels)
    else:
        method.prepare(make_task(selection, settings, run.folder))  # may raise: nothing is written
        run.keep_inputs(settings)
    if not started:
        selection.labels.save(run.folder / "labels.arrow")
        selection.save(run.folder / "split.safetensors")
        run.keep_teachers(record.classes)
        labels_hash = file_hash(run.folder / "labels.arrow")
        record = record.model_copy(update={"labels_file": labels_hash})
    run.write(record)
    with watch(run) as monitor:
        monitor.note(_describe(selection))
        for note in notes:
            monitor.note(note)
        if settings.method == AUTO:
            if not selection.tested.known and evidence(selection.known).known:
                monitor.note(_NOTHING_RESERVED)
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


def _describe(selection: Selection) -> str:
    """What is trained and validated on, and what is left out."""
    labels, table = selection.labels, selection.table
    text = f"training on {count(len(selection.train), 'image')}, "
    text += f"validating on {count(len(selection.val), 'image')}"
    labelled = int(np.count_nonzero(np.diff(selection.validation.cells.starts)))
    if labelled < len(selection.val):
        text += f" ({labelled:,} with a known label)"
    tests = "to test the guarantees of `complete`"
    if len(selection.reserved):
        text += f", reserving {len(selection.reserved):,} {tests}"
    if selection.hidden is not None:
        text += f", reserving {count(int(selection.hidden.sum()), 'known label')} {tests}"
    if table.splits is not None:
        used = set(table.splits.take(selection.used))
        unused = sorted({name for name in table.splits if name} - used)
        text += f"; not used: split {some(unused)}" if unused else ""
        without = sum(not name for name in table.splits) if "" not in used else 0
        text += f"; not used: {count(without, 'image')} without a split" if without else ""
    side = selection.side or []
    text += f"; side information: {count(len(side), 'class', 'classes')}" if side else ""
    kept = {*table.classes, *side}
    dropped = [name for name in labels.classes if name not in kept]
    return text + (f"; classes left out: {some(dropped, 20)}" if dropped else "")


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


def _fit(
    run: Run,
    record: Record,
    model: Classifier,
    method: Method,
    selection: Selection,
    paths: dict[int, ImageFile],
    monitor: Monitor,
) -> None:
    """Train the model and write the outcome."""
    settings, execution = record.settings, run.execution
    fabric = make_fabric(execution.device, settings.precision)
    model.to(fabric.device)
    if execution.compile:
        compile_backbone(model.backbone)
    rows, train_images = np.concatenate([selection.train, selection.val]), len(selection.train)
    table = without_drawn(selection.table.subset(rows))
    truth = by_humans(table)
    bank = bank_for(settings, method, train_images)
    inputs, broken = _inputs(run, record, model, selection, table, paths, monitor, bank=bank)
    if record.teachers:
        evidence = TeacherScores(run.teachers, table)
        _standardise(model, evidence, table.subset(np.arange(train_images)))
        monitor.note(describe_evidence(evidence, len(rows)))
        warn_of_pupils(evidence, truth, monitor.warn)
        inputs = EvidenceInputs(inputs, evidence)
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
    _note_wasted_epochs(progress, trainer.stages, monitor)
    _write_outcome(run, record, trainer, progress, broken)


def _inputs(
    run: Run,
    record: Record,
    model: Classifier,
    selection: Selection,
    table: LabelTable,
    paths: dict[int, ImageFile],
    monitor: Monitor,
    *,
    bank: Bank | None = None,
    keep_maps: bool = False,
) -> tuple[InputSource, list[str]]:
    """Inputs for the training images and then the validation images; messages of broken ones."""
    rows = np.concatenate([selection.train, selection.val])
    keep = partial(_keep_backbone, run, model.backbone, len(selection.train))
    if run.features is not None:
        return embedded_inputs(model, table, run.features, on_maps=keep), []
    broken: list[str] = []
    inputs = make_inputs(
        model,
        table,
        [paths[int(row)] for row in rows],
        record.settings,
        run.execution,
        broken.append,
        bank=Bank() if bank is None else bank,
        on_note=monitor.note,
        on_maps=keep,
        keep_maps=keep_maps,
    )
    for message in broken:
        monitor.warn(f"left out: {message}")
    return inputs, broken


def _write_outcome(
    run: Run, record: Record, trainer: Trainer, progress: Progress, broken: list[str]
) -> None:
    """Write the weights that are kept, and the figures on the validation labels."""
    save_state(run.folder / "best.safetensors", trainer.model.trained_weights())
    predictions = trainer.logits_of(trainer.model, trainer.val_set)
    outcome = {
        "finished": True,
        "broken": broken + [trainer.broken[row] for row in sorted(trainer.broken)],
        "best_epoch": progress.best_epoch + 1,
        "best_val_mAP": progress.best if np.isfinite(progress.best) else None,
        **decision_figures(collect_known(predictions, calibrating(trainer.val_set.table))),
    }
    run.write(record.model_copy(update=outcome))


def _fit_members(
    run: Run,
    record: Record,
    model: Classifier,
    selection: Selection,
    paths: dict[int, ImageFile],
    monitor: Monitor,
) -> None:
    """Train the members that ``auto`` chooses, and write the outcome."""
    table = selection.table.subset(np.concatenate([selection.train, selection.val]))
    model.to(find_device(run.execution.device))
    inputs, broken = _inputs(run, record, model, selection, table, paths, monitor, keep_maps=True)
    record = fit_members(run, record, model, selection, inputs, monitor)
    run.write(record.model_copy(update={"broken": broken}))
    sweep_trials(run.folder)


def _standardise(model: Classifier, scores: TeacherScores, training: LabelTable) -> None:
    """Set the scale of the scores of teachers, as they are on the training images."""
    if isinstance(model.head, WithEvidence):
        mean, deviation = scores.statistics(np.arange(len(training)))
        known = int(np.count_nonzero(training.cells.values))
        model.head.standardise(torch.from_numpy(mean), torch.from_numpy(deviation), known)


def _note_wasted_epochs(progress: Progress, stages: list[Stage], monitor: Monitor) -> None:
    """Say so if later stages, or pseudo-labels, came after the epoch that is kept."""
    kept = progress.best_epoch + 1
    stage = next((line["stage"] for line in progress.history if line["epoch"] == kept), 0)
    if 0 < stage < len(stages):
        remedy = ". --keep best keeps the best of the last stage"
        monitor.note(
            f"epoch {kept}, of stage {stage} of {len(stages)}, was the best and is kept: what came "
            f"after had no effect on the model{'' if stages[-1].by_class else remedy}"
        )
    rounds = [line["epoch"] for line in progress.history if PSEUDO_LABELS in line]
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


def _keep_backbone(run: Run, backbone: Backbone, images: int, maps: InputSource) -> None:
    """Fit the reduction on training images and save the frozen part, unless the run has it."""
    if run.frozen_weights():
        return
    if isinstance(backbone.reduction, Reduction):
        sample = np.unique(np.linspace(0, images - 1, min(images, _FITTED)).astype(np.int64))
        parts = maps.batches(in_batches(sample, 64), ("clean",))
        backbone.reduction.fit(part.views["clean"] for part in parts)
    save_state(run.folder / "backbone.safetensors", backbone.frozen_state())
