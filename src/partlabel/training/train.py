"""From labels and images to a trained run: everything around the loop."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from partlabel.base.allocation import give_back_memory
from partlabel.base.errors import JobError, count, some
from partlabel.base.randomness import key
from partlabel.images.batches import Rows, in_batches
from partlabel.images.folder import ImageFiles
from partlabel.labels import LabelTable
from partlabel.labels.formats import read_labels
from partlabel.learning.methods import Method, Task
from partlabel.metrics.calibration import balanced_thresholds
from partlabel.models import Backbone, Classifier, Reduction
from partlabel.models.features import CachedMaps
from partlabel.models.prediction import gather
from partlabel.training.checkpoint import load_state, save_state
from partlabel.training.inputs import bank_for, make_inputs
from partlabel.training.monitor import Display, need_tensorboard, watch
from partlabel.training.run import Record, Run, build, open_folder
from partlabel.training.selection import (
    by_humans,
    choose_rows,
    find_files,
    of_both_kinds,
    side_classes,
)
from partlabel.training.settings import Settings, make_settings
from partlabel.training.trainer import Examples, Progress, Trainer

_FITTED = 2000  # images that the reduction of features is found on


def train(
    labels: LabelTable | str | os.PathLike[str],
    images: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    cache: str | os.PathLike[str] | None = None,
    tensorboard: bool = False,
    **settings: Any,
) -> Run:
    """Train a classifier.

    Args:
        labels: a table, or a label file that says its own format.
        images: the folder of the images.
        out: the folder of the run; must not exist, or be empty.
        resume: go on with a run that was stopped; a finished one is returned as it is.
        cache: where feature maps and decoded pixels are kept.
        tensorboard: also log to ``out/tensorboard``.
        settings: see :class:`Settings`: ``method="em"``, ``frozen="all"``, ``lr=1e-3``...

    Returns:
        The run; ``load(out)`` gives its classifier.
    """
    given = labels if isinstance(labels, LabelTable) else read_labels(labels)
    chosen = make_settings(**settings)
    if tensorboard:
        need_tensorboard()
    table, train_rows, val_rows, reserved = choose_rows(given, chosen)
    files = ImageFiles(images)
    used = np.concatenate([train_rows, val_rows, reserved])
    paths = find_files(table, files, used, strict=chosen.strict)
    run = Run(out)
    record = Record(
        chosen.model_dump(mode="json"),
        str(files.folder.resolve()),
        list(table.classes),
        _digest(given),
        len(train_rows),
        len(val_rows),
        len(reserved),
    )
    if open_folder(run, record, resume=resume):
        return run
    torch.manual_seed(key(chosen.seed, "init"))
    model, method = build(chosen, list(table.classes), pretrained=True)
    task = _task(given, table, train_rows, val_rows, chosen, run)
    method.prepare(task)  # before anything is written: it may refuse
    if not run.exists():
        given.save(run.folder / "labels.arrow")
        run.write(record)
    with watch(run, tensorboard=tensorboard) as watcher:
        watcher.note(_about(given, table, used, record, chosen.side))
        if _tells_nothing(task.validation):
            watcher.warn(
                "validation labels are all of one kind: no mAP, no thresholds and no completion "
                "can come of them. Label a few hundred images for all classes, in a split "
                "'holdout'; or train on all images with --val 0"
            )
        _fit(run, record, model, method, table, paths, train_rows, val_rows, chosen, cache, watcher)
    give_back_memory()
    return run


def _fit(
    run: Run,
    record: Record,
    model: Classifier,
    method: Method,
    table: LabelTable,
    paths: dict[int, Path],
    train_rows: NDArray[np.int64],
    val_rows: NDArray[np.int64],
    settings: Settings,
    cache: str | os.PathLike[str] | None,
    watcher: Display,
) -> None:
    rows = np.concatenate([train_rows, val_rows])
    part = table.subset(rows)
    files = [paths[int(row)] for row in rows]
    broken: list[str] = []
    middle = len(train_rows)
    inputs = make_inputs(
        model,
        part,
        files,
        settings,
        cache,
        broken.append,
        bank=bank_for(settings, method, middle),
        told=watcher.note,
        found=lambda maps: _keep_backbone(run, model.backbone, maps, middle),
    )
    for message in broken:
        watcher.warn(f"left out: {message}")
    truth = by_humans(part)
    examples = (
        Examples(part, inputs, np.arange(middle)),
        Examples(truth, inputs, np.arange(middle, len(rows))),
    )
    others = [
        Trainer(one, follower, *examples, own, home.checkpoint, watcher.member(home))
        for one, follower, own, home in _other_members(run, method, settings, model.classes)
    ]
    trainer = Trainer(model, method, *examples, settings, run.checkpoint, watcher, others)
    done = trainer.fit()
    if len(trainer.broken) + len(broken) >= len(train_rows) and not done.total_steps:
        raise JobError("no training image could be read")
    run.write_log(done.history)
    _tell_what_had_no_effect(done, len(trainer.stages), watcher)
    save_state(run.folder / "best.safetensors", model.trained_weights())
    record.broken = broken + [trainer.broken[row] for row in sorted(trainer.broken)]
    record.finished, record.best_epoch = True, done.best_epoch + 1
    record.best_val_mAP = done.best if np.isfinite(done.best) else None
    scores, judged = gather(trainer.predict(model, trainer.val_set))
    if len(judged):
        found = balanced_thresholds(scores, truth.dense(judged)).tolist()
        record.thresholds = [None if np.isnan(value) else value for value in found]
    run.write(record)


def _tell_what_had_no_effect(done: Progress, stages: int, watcher: Display) -> None:
    """Say so if later stages, or pseudo-labels, came after the epoch that is kept."""
    kept, last = done.best_epoch + 1, "--keep last keeps the last epoch"
    stage = next((line["stage"] for line in done.history if line["epoch"] == kept), 0)
    if 0 < stage < stages:
        watcher.note(
            f"epoch {kept}, of stage {stage} of {stages}, was the best and is kept: what came "
            f"after had no effect on the model. {last}"
        )
    rounds = [line["epoch"] for line in done.history if "pseudo_labels" in line]
    if rounds and kept < rounds[0]:
        watcher.note(
            f"epoch {kept} was the best and is kept, and pseudo-labels came before epoch "
            f"{rounds[0]}: they had no effect on the model. {last}"
        )


def _other_members(
    run: Run, leader: Method, settings: Settings, classes: list[str]
) -> Iterator[tuple[Classifier, Method, Settings, Run]]:
    """The members of an ensemble beside the first, each with a folder of its own in the run's."""
    for number in range(2, leader.members + 1):
        own = settings.model_copy(update={"seed": key(settings.seed, "member", number)})
        torch.manual_seed(key(own.seed, "init"))
        model, method = build(own, classes, pretrained=True)
        method.follow(leader)
        home = Run(run.folder / "members" / str(number))
        home.folder.mkdir(parents=True, exist_ok=True)
        yield model, method, own, home


def task_of(run: Run) -> Task:
    """What the method of a run was told before it started."""
    chosen = choose_rows(run.labels, run.settings)
    return _task(run.labels, chosen.table, chosen.train, chosen.val, run.settings, run)


def _task(
    given: LabelTable, table: LabelTable, train: Rows, val: Rows, settings: Settings, run: Run
) -> Task:
    side = None
    if settings.side is not None:
        side = given.with_classes(side_classes(given, settings.side)).subset(train)
    validation = by_humans(table.subset(val))
    return Task(table.subset(train), validation, settings.epochs, run.folder, side)


def _about(
    given: LabelTable, table: LabelTable, used: Rows, record: Record, side: list[str] | None
) -> str:
    """What is trained and validated on, and what is left out."""
    val = used[record.train_rows : record.train_rows + record.val_rows]
    lines = f"training on {count(record.train_rows, 'image')}, "
    lines += f"validating on {count(record.val_rows, 'image')}"
    labelled = int(np.count_nonzero(np.diff(by_humans(table.subset(val)).cells.starts)))
    lines += f" ({labelled:,} with a known label)" if labelled < len(val) else ""
    if record.reserved_rows:
        lines += f", and keeping {record.reserved_rows:,} to test what `complete` promises"
    if table.splits is not None:
        unused = sorted({name for name in table.splits if name} - set(table.splits.take(used)))
        lines += f"; not used: split {some(unused)}" if unused else ""
    aside = [] if side is None else side_classes(given, side)
    lines += f"; side information: {count(len(aside), 'class', 'classes')}" if aside else ""
    dropped = [name for name in given.classes if name not in {*table.classes, *aside}]
    return lines + (f"; classes left out: {some(dropped, 20)}" if dropped else "")


def _tells_nothing(validation: LabelTable) -> bool:
    """Whether there are validation images, but not labels of both kinds."""
    return len(validation) > 0 and not of_both_kinds(validation)


def _digest(table: LabelTable) -> str:
    """A hash of what a table says."""
    digest = hashlib.blake2b(digest_size=16)
    parts: list[Iterable[str]] = [table.ids, table.classes, table.splits or []]
    for names in parts:
        digest.update("\x1f".join(names).encode())
    cells = table.cells
    for array in (cells.starts, cells.columns, cells.values, cells.sources_or_human()):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _keep_backbone(run: Run, backbone: Backbone, maps: CachedMaps, images: int) -> None:
    """Save what is frozen, once the reduction has seen training images; or find it again."""
    path = run.folder / "backbone.safetensors"
    if path.is_file():
        backbone.load_state_dict(load_state(path), strict=False)
        return
    if isinstance(backbone.reduction, Reduction):
        some_of = np.unique(np.linspace(0, images - 1, min(images, _FITTED)).astype(np.int64))
        parts = maps.batches(in_batches(some_of, 64), ("clean",))
        backbone.reduction.fit(part.views["clean"] for part in parts)
    save_state(path, backbone.frozen_state())
