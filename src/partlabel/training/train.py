"""From labels and images to a trained run: what is asked for is checked, read and recorded."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from partlabel.base import processes
from partlabel.base.errors import InputError, count
from partlabel.base.process_files import own_folder
from partlabel.base.validation import first_problem
from partlabel.images.named_images import open_images
from partlabel.images.stored import ImageFile
from partlabel.labels import LabelTable
from partlabel.labels.formats import ReadOptions, read_options, read_with
from partlabel.learning.teachers import read_teacher, refuse_overlap
from partlabel.models.features.vector_files import VectorFile
from partlabel.training.arguments import make_settings, override, read_config
from partlabel.training.devices import find_device
from partlabel.training.embedded import (
    for_features,
    open_vectors,
)
from partlabel.training.fitting import train_into
from partlabel.training.image_files import find_files
from partlabel.training.monitor import need_tensorboard, print_note
from partlabel.training.opening import table_digest
from partlabel.training.run import Run
from partlabel.training.run_folder import check_same, is_same_job, open_folder
from partlabel.training.run_record import (
    FeaturesRecord,
    Location,
    Record,
    TeacherRecord,
    weights_hash,
)
from partlabel.training.run_split import (
    Selection,
    select,
)
from partlabel.training.settings import AUTO, Execution, Settings
from partlabel.training.together import (
    stated_groups,
    warn_of_leaks,
    with_near_duplicates,
    without_group,
)
from partlabel.training.unfreezing import unfreeze


@processes.together()
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
        images: the folder of the images, .tar or .parquet shards (``shard-{000..127}.tar``), or a
            .csv, .tsv or .txt list of paths; with ``features``, only to show them in reports.
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
            ``strict``, ``tensorboard``, ``quiet``).

    Returns:
        The run; ``partlabel.load(out)`` gives its classifier.
    """
    if out is None:
        raise InputError("name the folder of the run: out='run'")
    with own_folder(Path(out)) as folder:
        going_on = resume or is_same_job(folder)
        return _train(
            labels,
            images,
            folder,
            features,
            feature_ids,
            teachers,
            going_on,
            config,
            reading,
            settings,
        )


def _train(
    labels: LabelTable | str | os.PathLike[str],
    images: str | os.PathLike[str] | None,
    out: Path,
    features: str | os.PathLike[str] | None,
    feature_ids: str | os.PathLike[str] | None,
    teachers: Sequence[str | os.PathLike[str]],
    resume: bool,
    config: str | os.PathLike[str] | None,
    reading: ReadOptions | None,
    settings: dict[str, Any],
) -> Run:
    """As :func:`train`, in the folder of this process."""
    options = read_options(reading, settings)
    if config is not None:
        settings = override(read_config(Path(config)), settings)
    execution = _execution(settings)
    vectors = open_vectors(features, feature_ids)
    chosen = make_settings(**for_features(settings, has_features=vectors is not None))
    _check_call(chosen, execution, has_teachers=bool(teachers), has_features=vectors is not None)
    path = None if isinstance(labels, LabelTable) else Path(labels)
    if isinstance(labels, LabelTable):
        table = labels
    else:
        table = read_with(labels, without_group(options, chosen, Path(labels))).table
    if chosen.method == AUTO and chosen.frozen != "all":
        inside = partial(train, table, images, resume=True, **execution.model_dump())
        stated = stated_groups(table, chosen, path)
        note = partial(print_note, quiet=execution.quiet)
        return unfreeze(out, chosen, table, stated, inside, note, resume=resume)
    digest, files = table_digest(table), None if images is None else open_images(images)
    run = Run(out, images, execution, vectors, [read_teacher(Path(path)) for path in teachers])
    going_on = resume and run.exists()
    if going_on:
        check_same(run, chosen, digest)
    selection = (
        run.selection if going_on else select(table, chosen, stated_groups(table, chosen, path))
    )
    refuse_overlap([one.for_classes(selection.classes) for one in run.given_teachers])
    notes: list[str] = []
    paths: dict[int, ImageFile] = {}
    _check_processes(chosen, digest, vectors, selection)
    if vectors is not None:
        vectors.check(vectors.locate(selection.table.ids.take(selection.used)))
    elif files is not None:
        paths = find_files(
            selection.table, files, selection.used, strict=execution.strict, on_note=notes.append
        )
    else:
        raise InputError("name the images with --images, or a file with --features")
    processes.agree({"images": processes.summary(paths)})
    where = None if files is None else Location.of(files.where, run.folder)
    with open_folder(run, chosen, digest, resume=resume) as finished:
        if not finished and run.exists():
            record = run.record.model_copy(update={"images": where})
            train_into(run, record, selection, paths, notes)
        elif not finished:
            groups = with_near_duplicates(
                selection, chosen, execution, paths, vectors, notes.append
            )
            selection = select(table, chosen, groups)
            warn_of_leaks(selection)
            record = _new_record(run, chosen, selection, where, digest)
            train_into(run, record, selection, paths, notes)
    return run


def _check_processes(
    settings: Settings, labels: str, vectors: VectorFile | None, selection: Selection
) -> None:
    """Refuse processes that would train on something else, or that have nothing to do."""
    if processes.size() == 1:
        return
    if processes.size() > len(selection.train):
        raise InputError(
            f"{processes.size()} processes for {count(len(selection.train), 'training image')}: "
            "start fewer"
        )
    same = settings.model_dump(exclude={"start", "group"})  # other folders in each process
    facts = {f"--{name}": value for name, value in same.items()} | {"labels": labels}
    facts["features"] = "" if vectors is None else vectors.digest()
    facts["weights"] = str(weights_hash(settings))
    processes.agree(facts)


def _check_call(
    settings: Settings, execution: Execution, *, has_teachers: bool, has_features: bool
) -> None:
    """Refuse what cannot work or has no effect, before anything is read or written."""
    if execution.cache_pixels and settings.frozen != "nothing":
        raise InputError("--cache-pixels has no effect with --frozen or --unfreeze last")
    if has_teachers and settings.method == AUTO:
        raise InputError("--teacher has no effect with --method auto; name another --method")
    if execution.compile and has_features:
        raise InputError("--compile has no effect with --features: there is no network")
    find_device(execution.device)
    if execution.tensorboard:
        need_tensorboard()


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


def _execution(settings: dict[str, Any]) -> Execution:
    """Take the arguments that say how to carry out a training out of the others."""
    names = [name for name in settings if name in Execution.model_fields]
    try:
        return Execution(**{name: settings.pop(name) for name in names})
    except ValidationError as error:
        where, _, message = first_problem(error)
        raise InputError(f"{where[0]}: {message}") from None
