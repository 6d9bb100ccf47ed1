"""A run on disk: what was trained, on what, how it went, and the model that came out.

run.json             settings, classes, where the images are, how far it is
labels.arrow         the labels, as they were given
backbone.safetensors the frozen part of the backbone, if there is one
last.safetensors     the checkpoint
best.safetensors     the weights that were kept
stages/              the weights that each stage but the last ended with
memory/, diary/      labels that the method gave, or took for present, on the way
log.csv              a line an epoch
"""

import csv
import io
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from partlabel.base.errors import FileError, InputError, one_of
from partlabel.base.files import atomic_file
from partlabel.labels import LabelTable
from partlabel.learning.methods import METHODS, Method, Task
from partlabel.models import Backbone, Classifier
from partlabel.models.heads import HEADS
from partlabel.training.checkpoint import load_state, stage_file
from partlabel.training.settings import Settings

VERSION = 3


@dataclass
class Record:
    """What ``run.json`` says."""

    settings: dict[str, Any]
    images: str
    classes: list[str]
    labels: str = ""  # a hash of the labels
    train_rows: int = 0
    val_rows: int = 0
    reserved_rows: int = 0
    broken: list[str] = field(default_factory=list)
    finished: bool = False
    best_epoch: int = 0
    best_val_mAP: float | None = None  # noqa: N815  # as in the metrics
    thresholds: list[float | None] = field(default_factory=list)  # [C] to predict a class from
    version: int = VERSION


class Run:
    """A run's folder.

    Args:
        folder: as given to ``--out``.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @property
    def checkpoint(self) -> Path:
        """Where the trainer saves."""
        return self.folder / "last.safetensors"

    def exists(self) -> bool:
        """Whether the folder holds a run, finished or not."""
        return (self.folder / "run.json").is_file()

    @property
    def finished(self) -> bool:
        """Whether the folder holds a run that is done."""
        return self.exists() and self.record.finished

    @property
    def record(self) -> Record:
        """What ``run.json`` says."""
        path = self.folder / "run.json"
        if not path.is_file():
            raise FileError(self.folder, "there is no run here (run.json is missing)")
        try:
            found = json.loads(path.read_bytes())
            if found.get("version") != VERSION:
                raise FileError(
                    path,
                    f"a run of version {found.get('version')}; this partlabel reads {VERSION}. "
                    "Train again, or use the partlabel that made it",
                )
            return Record(**found)
        except FileError:
            raise
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise FileError(path, f"damaged ({error})") from error

    def write(self, record: Record) -> None:
        """Write ``run.json``."""
        with atomic_file(self.folder / "run.json") as stream:
            stream.write(json.dumps(asdict(record), indent=1).encode())

    def write_log(self, history: list[dict[str, Any]]) -> None:
        """Write ``log.csv``: a line an epoch."""
        names = list(dict.fromkeys(name for line in history for name in line))
        with atomic_file(self.folder / "log.csv") as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            writer = csv.DictWriter(text, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(history)
            text.detach()

    def history(self) -> list[dict[str, float]]:
        """What ``log.csv`` says."""
        self._need("log.csv")
        with (self.folder / "log.csv").open(newline="") as stream:
            return [
                {name: float(value) for name, value in line.items() if value}
                for line in csv.DictReader(stream)
            ]

    @property
    def settings(self) -> Settings:
        """How the run was trained."""
        try:
            return Settings(**self.record.settings)
        except ValueError as error:
            raise FileError(self.folder / "run.json", f"damaged ({error})") from error

    @property
    def labels(self) -> LabelTable:
        """The labels that the run was given."""
        self._need("labels.arrow")
        return LabelTable.open(self.folder / "labels.arrow")

    def classifier(self) -> Classifier:
        """The trained model, on the CPU."""
        model, _ = build(self.settings, self._finished().classes, pretrained=False)
        weights = self._weights("best.safetensors")
        if self.settings.frozen != "nothing":
            frozen = self._weights("backbone.safetensors")
            weights |= {f"backbone.{name}": value for name, value in frozen.items()}
        try:
            model.load_state_dict(weights)
        except (RuntimeError, TypeError, AttributeError) as error:
            raise FileError(self.folder, f"its weights do not fit ({error})") from error
        return model.eval()

    def method(self, task: Task) -> Method:
        """The method as it was at the end of the training.

        Args:
            task: what it was told before it started; ``training.task_of`` knows.
        """
        _, method = build(self.settings, self._finished().classes, pretrained=False)
        method.prepare(task)
        try:
            method.load_state_dict(self.last_state()["method"])
        except (RuntimeError, TypeError, AttributeError) as error:
            raise FileError(self.checkpoint, f"its method does not fit ({error})") from error
        return method.eval()

    def last_state(self) -> dict[str, Any]:
        """The checkpoint: ``"model"`` and ``"method"`` after the last step, and more."""
        state = self._weights(self.checkpoint.name)
        if not all(isinstance(state.get(part), dict) for part in ("model", "method")):
            raise FileError(self.checkpoint, "holds no model and method")
        return state

    def stage_weights(self, stage: int) -> dict[str, Any]:
        """The weights that a stage, from 1, ended with; none if it was the last."""
        path = stage_file(self.folder, stage)
        return self._weights(str(path.relative_to(self.folder))) if path.is_file() else {}

    def _finished(self) -> Record:
        record = self.record
        if not record.finished:
            raise FileError(
                self.folder, "the run is not finished; go on with the same call and --resume"
            )
        return record

    def _weights(self, name: str) -> dict[str, Any]:
        self._need(name)
        weights = load_state(self.folder / name)
        if not isinstance(weights, dict):
            raise FileError(self.folder / name, "holds no weights")
        return weights

    def _need(self, name: str) -> None:
        if not self.exists():
            raise FileError(self.folder, "there is no run here (run.json is missing)")
        if not (self.folder / name).is_file():
            raise FileError(self.folder, f"{name} is missing; train again")


def build(settings: Settings, classes: list[str], *, pretrained: bool) -> tuple[Classifier, Method]:
    """A new model and its method; without ``pretrained`` the weights are left to be loaded."""
    method = METHODS[one_of("method", settings.method, METHODS)](**settings.options)
    weights = settings.weights if pretrained else "none"
    how = (settings.frozen, settings.size, settings.reduce)
    backbone = Backbone(settings.backbone, weights, *how)
    head = make_head(settings, method, backbone.channels, len(classes))
    return Classifier(backbone, head, classes), method


def make_head(settings: Settings, method: Method, features: int, classes: int) -> nn.Module:
    """The head that the settings name, or the method's own; with what the method puts on it."""
    if settings.head is None:
        head = method.head(features, classes)
    else:
        said = {"dropout": method.dropout} if method.dropout else {}  # else the head's own default
        given = said | settings.head_options
        head = HEADS[settings.head](features, classes, **given)
    return method.refine(head, classes)


def load(run: str | os.PathLike[str]) -> Classifier:
    """The trained model of a run; nothing in a run's folder is ever executed."""
    return Run(run).classifier()


def open_folder(run: Run, record: Record, *, resume: bool) -> bool:
    """Make the folder of a run, or check that it may go on; returns whether it is finished."""
    folder = run.folder
    if folder.exists() and not folder.is_dir():
        raise FileError(folder, "is a file; name a new folder with --out")
    if not resume and folder.is_dir() and any(folder.iterdir()):
        raise FileError(folder, "is not empty; add --resume to go on, or name another with --out")
    if run.exists():
        before = run.record
        for name in sorted({*before.settings, *record.settings}):
            old, new = before.settings.get(name), record.settings.get(name)
            if old != new:
                raise InputError(f"{folder}: was started with {name} = {old!r}, not {new!r}")
        for what in ("images", "classes", "labels"):
            if getattr(before, what) != getattr(record, what):
                raise InputError(f"{folder}: was started with other {what}")
        return before.finished
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"cannot be made ({error.strerror})") from error
    return False
