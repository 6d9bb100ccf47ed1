"""Train the backbone after ``auto``: what it chose on frozen features is the start.

A linear head is trained on the frozen features with the method and weight decay that ``auto`` found
best (linear probe). Then the last stage of the backbone, or all of it, is trained with that head,
for as many epochs as the budget allows. The result is kept only if its validation mAP is higher
than that of ``auto``.

    RUN/parts/frozen      the run of auto
    RUN/parts/probe       the linear head
    RUN/parts/unfrozen    the run with the trained backbone
    RUN/unfreeze.json     the settings that were asked for, and what is kept

The run that is kept then moves to RUN, and the others are removed.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from partlabel.base.choices import WHOLE_BATCH
from partlabel.base.errors import FileError, InputError
from partlabel.base.files import atomic_file
from partlabel.labels import LabelTable
from partlabel.labels.formats.delimited import write_delimited
from partlabel.labels.groups import Groups
from partlabel.training.auto.budget import backbone_epochs
from partlabel.training.backbone_work import describe_work
from partlabel.training.run import Run
from partlabel.training.run_record import Location
from partlabel.training.run_split import VALIDATION, has_own_validation, select
from partlabel.training.settings import AUTO, Settings

_PARTS, _OUTCOME = "parts", "unfreeze.json"
_PLAN: dict[str, dict[str, Any]] = {  # of the training of the backbone, by what stays frozen
    "lower": {"optimizer": "adam", "lr": 1e-4, "schedule": "cosine"},
    "nothing": {"optimizer": "adam", "lr": 5e-5, "schedule": "cosine"},
}
_SHARED = (  # settings that all trainings have
    *("backbone", "weights", "size", "precision", "seed", "split", "val", "val_split"),
    *("reserve", "drop_empty"),
)

Train = Callable[..., Run]  # into a folder, with settings


def unfreeze(
    folder: Path,
    settings: Settings,
    table: LabelTable,
    groups: Groups | None,
    train: Train,
    note: Callable[[str], object],
    *,
    resume: bool,
) -> Run:
    """Let ``auto`` choose on frozen features, then train the backbone; returns what is better.

    Args:
        folder: of the run; new or empty, unless ``resume``.
        settings: those of ``auto``; ``frozen`` says which part of the backbone is not trained.
        table: the labels.
        groups: images that the user groups; None if there are none.
        train: trains on the labels and images of the run, or goes on with a training.
        note: called with what will be done, before it begins.
        resume: whether to go on, or to return a finished run.
    """
    if settings.val == 0 and settings.val_split is None:
        raise InputError(
            "--unfreeze needs validation images, to keep the better model: leave out --val 0"
        )
    asked, parts = settings.model_dump(mode="json"), folder / _PARTS
    _check(folder, asked, resume=resume)
    if Run(folder).exists():  # finished: nothing is left to do but to clear up
        shutil.rmtree(parts, ignore_errors=True)
        return Run(folder)
    if kept := _outcome(folder).get("kept"):  # stopped while it was moved
        return _move(Run(parts / kept), folder)
    epochs = backbone_epochs(settings.budget)
    images = len(select(table, settings, groups).train)
    note(f"first `auto` on frozen features. Then {describe_work(settings, images, epochs)}")
    parts.mkdir(parents=True, exist_ok=True)
    _write(folder, {"asked": asked, "kept": None})
    search = {name: getattr(settings, name) for name in ("budget", "folds", "single")}
    shared = {name: getattr(settings, name) for name in _SHARED}
    if settings.val is None and not has_own_validation(table, settings):
        shared["val"] = VALIDATION  # auto would hold out each image in turn, other methods a share
    group_file = None if groups is None else _group_file(groups, table.ids, parts / "given.csv")
    frozen = train(
        parts / "frozen",
        **_given(search | shared | {"group": group_file}),
        method=AUTO,
        frozen="all",
        split_duplicates=settings.split_duplicates,
    )
    selection = frozen.selection
    same = _group_file(selection.groups, selection.labels.ids, parts / "groups.csv")
    single = {**shared, "split_duplicates": True, "group": same, **_best_single(frozen)}
    probe = train(parts / "probe", **_given(single), frozen="all")
    tuned = {**single, **_PLAN[settings.frozen], "epochs": epochs, "start": str(probe.folder)}
    tuned["fixed_statistics"] = True  # the head was trained on features that follow from them
    unfrozen = train(parts / "unfrozen", **_given(tuned), frozen=settings.frozen)
    kept = unfrozen if _score(unfrozen) > _score(frozen) else frozen
    _write(folder, {"asked": asked, "kept": kept.folder.name, "val_mAP": _scores(frozen, unfrozen)})
    return _move(kept, folder)


def describe(folder: Path) -> str:
    """What was kept and why, in a line; empty for a run that was not made here."""
    outcome = _outcome(folder)
    if not outcome.get("kept"):
        return ""
    scores = outcome.get("val_mAP") or {}
    text = ", ".join(
        f"{name} {'-' if score is None else format(100 * score, '.2f')}"
        for name, score in scores.items()
    )
    return f"kept: {outcome['kept']} (validation mAP: {text})"


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _check(folder: Path, asked: dict[str, Any], *, resume: bool) -> None:
    """Raise an error unless the folder is empty, or was begun with the same settings."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not resume:
        raise FileError(folder, "is not empty; add --resume to go on, or name another with --out")
    if _outcome(folder).get("asked") != asked:
        raise InputError(f"{folder}: was started with other settings than these")


def _best_single(run: Run) -> dict[str, Any]:
    """The settings of the member with the largest share that has a linear head on all features.

    If there is none, those of the method of the best member, with a linear head.
    """
    members = sorted(run.record.members, key=lambda member: -member.share)
    linear = [m for m in members if m.settings.head in (None, "linear") and not m.settings.reduce]
    own = (linear or members)[0].settings
    # the classes that the network was pretrained on lose their meaning when it is trained
    head_options = own.head_options if own.own_classes is None else {"power": own.power}
    return {
        "method": own.method,
        "options": own.options,
        "weight_decay": own.weight_decay if linear else 1e-3,
        "optimizer": own.optimizer,
        "lr": None if own.optimizer == WHOLE_BATCH else own.lr,
        "head": "linear" if linear and head_options else None,
        "head_options": head_options if linear else {},
        "epochs": own.epochs,
    }


def _group_file(groups: Groups, ids: Sequence[str], path: Path) -> str | None:
    """Write groups to a file for ``--group``, and return its name; None if there are none."""
    if not groups.groups:
        return None
    write_delimited(path, ["image", "group"], zip(ids, groups.first.tolist(), strict=True))
    return str(path)


def _score(run: Run) -> float:
    score = run.record.best_val_mAP
    return -1.0 if score is None else score


def _scores(*runs: Run) -> dict[str, float | None]:
    return {run.folder.name: run.record.best_val_mAP for run in runs}


def _outcome(folder: Path) -> dict[str, Any]:
    """The content of ``unfreeze.json``; empty without."""
    path = folder / _OUTCOME
    if not path.is_file():
        return {}
    try:
        outcome = json.loads(path.read_bytes())
    except ValueError as error:
        raise FileError(path, f"damaged ({error})") from error
    return outcome if isinstance(outcome, dict) else {}


def _write(folder: Path, outcome: dict[str, Any]) -> None:
    with atomic_file(folder / _OUTCOME) as stream:
        stream.write(json.dumps(outcome, indent=1).encode())


def _move(run: Run, folder: Path) -> Run:
    """Move a finished run to another folder; its record last, so that a kill leaves no half."""
    record = run.record
    for path in sorted(run.folder.iterdir()):
        if path.name != "run.json" and not (folder / path.name).exists():
            path.rename(folder / path.name)
    moved = Run(folder)
    where = None if record.images is None else Location.of(Path(record.images.absolute), folder)
    moved.write(record.model_copy(update={"images": where}))
    shutil.rmtree(folder / _PARTS)
    return moved
