"""Runs in the form of other tools: a model to deploy, tasks to label, a dataset to publish."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from partlabel.base.errors import FileError, InputError, count, one_of
from partlabel.judging.completion import complete_run, files_of
from partlabel.judging.decisions import Decisions, final_decisions
from partlabel.judging.scoring import evaluate_reserved, score
from partlabel.output.export.cleanlab_data import write_cleanlab
from partlabel.output.export.deployed import Package, in_words, make_package
from partlabel.output.export.hf_dataset import write_dataset
from partlabel.output.export.hub_folder import write_hub
from partlabel.output.export.label_studio_project import config_path, write_project
from partlabel.output.export.onnx_model import write_onnx
from partlabel.output.export.torch_program import write_program
from partlabel.output.targets import TARGETS, Target, check_labels_target
from partlabel.training.image_files import locate_all
from partlabel.training.run import Run
from partlabel.version import VERSION

__all__ = ["TARGETS", "ExportOptions", "Exported", "Target", "check_labels_target", "export_run"]


@dataclass(frozen=True)
class ExportOptions:
    """What can be chosen about an export.

    Args:
        min_precision: share of the decisions, or of the labels filled in, that must be right.
        tested: whether the decisions of a model are tested on the reserved labels of the run.
        resized: whether a model takes images in the size of the run, and does not resize them.
        overwrite: whether to replace files that exist; folders are never replaced.
    """

    min_precision: float = 0.95
    tested: bool = True
    resized: bool = False
    overwrite: bool = False


@dataclass(frozen=True)
class Exported:
    """What was written.

    Args:
        target: the form of output.
        paths: the files, or the folder.
        notes: what is worth knowing about it.
        about: what a model says about itself; empty for other targets.
    """

    target: str
    paths: list[Path]
    notes: list[str] = field(default_factory=list)
    about: dict[str, object] = field(default_factory=dict)


def export_run(run: Run, out: Path, to: str, options: ExportOptions | None = None) -> Exported:
    """Write a finished run in another form; see ``TARGETS``."""
    options = ExportOptions() if options is None else options
    target = TARGETS[one_of("target", to, TARGETS)]
    target.need_extra()
    if options.resized and to not in ("onnx", "torch-export"):
        raise InputError("--resized is for --to onnx and --to torch-export")
    _check_free(out, target, overwrite=options.overwrite)
    return _WRITERS[target.content](run, out, target, options)


def _check_free(out: Path, target: Target, *, overwrite: bool) -> None:
    """Raise an error for an output that cannot be written, before anything is computed."""
    if not out.absolute().parent.is_dir():
        raise FileError(out, "its folder does not exist")
    if target.is_folder:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise FileError(out, "exists and is not an empty folder; choose a new name")
        return
    beside = {"tasks": [config_path(out)], "labels": files_of(out)[1:]}
    for path in [out, *beside.get(target.content, [])]:
        if path.is_dir():
            raise FileError(path, "is a folder; name a file")
        if path.exists() and not overwrite:
            raise FileError(path, "already exists; choose another name, or use --overwrite")


def _export_model(run: Run, out: Path, target: Target, options: ExportOptions) -> Exported:
    decisions = final_decisions(run, options.min_precision, tested=options.tested)
    package = make_package(run, decisions)
    notes = [f"decisions: {in_words(package.about)}"]
    if target.name == "onnx":
        difference = write_onnx(package, out, resized=options.resized)
        notes.append(
            f"compared with the model in onnxruntime: probabilities differ by {difference:.1g}"
        )
    elif target.name == "torch-export":
        write_program(package, out, resized=options.resized)
    else:
        notes.append(write_hub(_with_figures(run, package, decisions), out))
    return Exported(target.name, [out], notes, package.about)


def _with_figures(run: Run, package: Package, decisions: Decisions) -> Package:
    """A package whose model card also has the figures on reserved images, if they were used."""
    if decisions.guaranteed:
        figure = float(evaluate_reserved(run)["mAP"])
        package.about["reserved_mAP"] = None if np.isnan(figure) else figure
    return package


def _export_labels(run: Run, out: Path, target: Target, options: ExportOptions) -> Exported:
    done = complete_run(run, options.min_precision)
    paths = done.save(out, target.name)
    return Exported(target.name, paths, [done.headline(), *done.notes])


def _export_tasks(run: Run, out: Path, target: Target, options: ExportOptions) -> Exported:
    if run.record.images is None and not run.has_images:
        raise FileError(run.folder, "was trained on features; name its images with --images")
    decisions = final_decisions(run, options.min_precision, tested=options.tested)
    scored, record = score(run, run.selection.known), run.record.calibration
    decided = decisions.decide(scored.scores)
    probabilities = scored.scores if record is None else record.open().probabilities(scored.scores)
    version = f"partlabel {VERSION} {run.folder.resolve().name}"
    paths = write_project(scored.table, probabilities, decided, out, version)
    notes = [] if decisions.guaranteed else [f"no guarantee: {decisions.without}"]
    return Exported(target.name, paths, notes)


def _export_dataset(run: Run, out: Path, target: Target, options: ExportOptions) -> Exported:
    done, images = complete_run(run, options.min_precision), run.images
    files = locate_all(done.table, images)
    write_dataset(done.table, files, images, out)
    return Exported(target.name, [out], [done.headline(), *done.notes])


def _export_probabilities(run: Run, out: Path, target: Target, options: ExportOptions) -> Exported:
    number = write_cleanlab(run, out)
    return Exported(target.name, [out], [f"{count(number, 'image')} with all labels known"])


_WRITERS: dict[str, Callable[[Run, Path, Target, ExportOptions], Exported]] = {
    "model": _export_model,
    "labels": _export_labels,
    "tasks": _export_tasks,
    "dataset": _export_dataset,
    "probabilities": _export_probabilities,
}
