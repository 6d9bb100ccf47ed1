"""A run on disk: what was trained, on what, how it went, and the model that came out.

run.json             settings, classes, where the images or features are, the outcome
config.yaml          the settings again, as a file for ``partlabel train --config``
labels.arrow         the labels, as they were given
split.safetensors    which images were trained on, validated on, and reserved
backbone.safetensors the frozen part of the backbone, if there is one
last.safetensors     the checkpoint
best.safetensors     the weights that were kept
stages/              the weights that each stage but the last ended with
inputs/              copies of the files that settings of the method name
memory/, diary/      labels that the method gave to unknown cells
teachers/            the scores of teachers for the classes of the run
log.csv              one line per epoch
leaderboard.csv      what the method ``auto`` tried; it has no checkpoint and no log
out_of_fold.safetensors  its logits for training images, of models that did not see them
auto/                its trainings, until the run is finished

A run can be moved. Images and features are looked for where they were relative to the run, then at
their absolute path; every command that needs them also takes ``--images`` and ``--features``.
"""

import csv
import hashlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from partlabel.base.errors import FileError, InputError, count
from partlabel.base.files import atomic_file
from partlabel.labels import LabelTable
from partlabel.learning.extensions import Artifacts, HasArtifacts
from partlabel.learning.methods import METHODS, Method, Task
from partlabel.learning.teachers import Teacher, read_teacher
from partlabel.models import Classifier
from partlabel.models.features.vector_files import VectorFile
from partlabel.training.arguments import write_config
from partlabel.training.auto.members import FEATURES_ONLY, MemberRecord, ensemble_head
from partlabel.training.build import build
from partlabel.training.checkpoint import load_state, must_fit, stage_file
from partlabel.training.selection import Selection, load_selection
from partlabel.training.settings import AUTO, Execution, Settings

VERSION = 5
_FROZEN = "backbone.safetensors"


class Location(BaseModel):
    """Where the images or the features of a run are."""

    model_config = ConfigDict(extra="forbid")
    absolute: str
    from_run: str | None  # relative to the folder of the run; None on another drive

    @classmethod
    def of(cls, path: Path, run: Path) -> "Location":
        """As it is recorded in a run."""
        try:
            relative = os.path.relpath(path.resolve(), run.resolve())
        except ValueError:  # another drive, on Windows
            relative = None
        return cls(absolute=str(path.resolve()), from_run=relative)

    def candidates(self, run: Path) -> list[Path]:
        """Where to look for it."""
        relative = [] if self.from_run is None else [(run.resolve() / self.from_run).resolve()]
        return [*relative, Path(self.absolute)]


class FeaturesRecord(BaseModel):
    """The features that a run was trained on."""

    model_config = ConfigDict(extra="forbid")
    file: Location
    ids: Location | None  # of a file with the ids; None if they are in the same file
    digest: str
    dimension: int

    @classmethod
    def of(cls, features: VectorFile, run: Path) -> "FeaturesRecord":
        """As they are recorded in a run."""
        ids = None if features.ids_path is None else Location.of(features.ids_path, run)
        return cls(
            file=Location.of(features.path, run),
            ids=ids,
            digest=features.digest(),
            dimension=features.dimension,
        )

    def open(self, run: Path) -> VectorFile:
        """The file, if it is still there and the same."""
        path = _first_existing(self.file.candidates(run))
        ids = None if self.ids is None else _first_existing(self.ids.candidates(run))
        if path is None or (self.ids is not None and ids is None):
            gone = self.file if path is None or self.ids is None else self.ids
            raise FileError(
                gone.absolute, "the features of the run are not here any more; name them with "
                "--features (and --feature-ids)"
            )  # fmt: skip
        features = VectorFile(path, ids)
        if features.digest() != self.digest:
            raise FileError(
                path, "has changed since the run was trained; name the features with --features"
            )
        return features


class TeacherRecord(BaseModel):
    """A file of scores that a run was trained with. The run keeps a copy of the scores."""

    model_config = ConfigDict(extra="forbid")
    name: str
    digest: str


class Record(BaseModel):
    """The content of ``run.json``."""

    model_config = ConfigDict(extra="forbid")
    version: int = VERSION
    settings: Settings
    images: Location | None  # None for a run on features without images
    features: FeaturesRecord | None = None
    teachers: list[TeacherRecord] = []
    classes: list[str]
    side: list[str] | None = None
    labels: str  # a hash of the labels
    labels_file: str  # a hash of labels.arrow
    weights_file: str | None  # a hash of the file that --weights names
    train_rows: int
    val_rows: int
    reserved_rows: int
    finished: bool = False
    broken: list[str] = []
    best_epoch: int = 0
    best_val_mAP: float | None = None  # noqa: N815  # as in the metrics
    members: list[MemberRecord] = []  # of the ensemble that ``auto`` made
    thresholds: list[float | None] = []  # [C] a class is predicted from this score on


class Run:
    """The folder of a run, and the images, cache and workers to use with it.

    Args:
        folder: as given to ``--out``.
        images: the folder of the images, if it is not where the run remembers it.
        execution: device, cache and number of workers, which change speed but not results.
        features: a file of features to use instead of those that the run was trained on.
        teachers: scores of teachers to use instead of those that the run was trained with.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        images: str | os.PathLike[str] | None = None,
        execution: Execution | None = None,
        features: VectorFile | None = None,
        teachers: Sequence[Teacher] = (),
    ) -> None:
        self.folder = Path(folder)
        self.execution = execution or Execution()
        self._images = None if images is None else Path(images)
        self.given_features, self.given_teachers = features, list(teachers)

    def __repr__(self) -> str:
        if not self.exists():
            return f"Run({str(self.folder)!r}, not started)"
        record = self.record
        about = f"{record.settings.method}, {len(record.classes)} classes"
        if not record.finished:
            return f"Run({str(self.folder)!r}, {about}, not finished)"
        score = record.best_val_mAP
        result = "no validation" if score is None else f"validation mAP {100 * score:.2f}"
        if record.members:
            kept = count(len(record.members), "member")
        else:
            kept = f"epoch {record.best_epoch}"
        return f"Run({str(self.folder)!r}, {about}, {kept}, {result})"

    def using(
        self,
        images: str | os.PathLike[str] | None,
        execution: Execution,
        features: VectorFile | None = None,
        teachers: Sequence[Teacher] = (),
    ) -> "Run":
        """The same run with other images, features or scores, unless None, and execution."""
        return Run(
            self.folder,
            self._images if images is None else images,
            execution,
            features or self.given_features,
            teachers or self.given_teachers,
        )

    @property
    def checkpoint(self) -> Path:
        """The file that the trainer saves to."""
        return self.folder / "last.safetensors"

    def exists(self) -> bool:
        """Whether the folder holds a run, finished or not."""
        return (self.folder / "run.json").is_file()

    @property
    def finished(self) -> bool:
        """Whether the folder holds a finished run."""
        return self.exists() and self.record.finished

    @property
    def record(self) -> Record:
        """The content of ``run.json``."""
        path = self.folder / "run.json"
        if not path.is_file():
            raise FileError(self.folder, "there is no run here (run.json is missing)")
        try:
            content = json.loads(path.read_bytes())
            version = content.get("version")
            if version == VERSION:
                if content.pop("checksum", None) != _checksum(content):
                    raise ValueError("its checksum does not fit")
                return Record(**content)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise FileError(path, f"damaged ({_first_line(error)})") from error
        raise FileError(
            path,
            f"this run has version {version}, and this partlabel reads version {VERSION}. Train "
            "again, or use the partlabel that made it",
        )

    def write(self, record: Record) -> None:
        """Write ``run.json``, and ``config.yaml``."""
        with atomic_file(self.folder / "config.yaml") as stream:
            stream.write(write_config(record.settings).encode())
        with atomic_file(self.folder / "run.json") as stream:
            content = record.model_dump(mode="json")
            content["checksum"] = _checksum(content)
            stream.write(json.dumps(content, indent=1).encode())

    def write_log(self, history: list[dict[str, Any]]) -> None:
        """Write ``log.csv``: one line per epoch."""
        names = list(dict.fromkeys(name for line in history for name in line))
        with atomic_file(self.folder / "log.csv") as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            writer = csv.DictWriter(text, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(history)
            text.detach()

    def history(self) -> list[dict[str, float]]:
        """The content of ``log.csv``."""
        path = self._file("log.csv")
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                return [
                    {name: float(value) for name, value in line.items() if value}
                    for line in csv.DictReader(stream)
                ]
        except (ValueError, TypeError, AttributeError, csv.Error) as error:
            raise FileError(path, f"damaged ({_first_line(error)})") from error

    @property
    def settings(self) -> Settings:
        """How the run was trained."""
        return self.record.settings

    @property
    def images(self) -> Path:
        """The folder of the images: the one that was given, or the one that the run remembers."""
        if self._images is not None:
            return self._images
        images = self.record.images
        if images is None:
            raise FileError(self.folder, "was trained on features, without images")
        candidates = images.candidates(self.folder)
        folders = [folder for folder in candidates if folder.is_dir()]
        names = self.selection.labels.ids[:5] if len(folders) > 1 else []
        for folder in folders:
            if any((folder / name).is_file() for name in names):
                return folder
        if folders:
            return folders[0]
        raise FileError(
            candidates[-1], "the images of the run are not here any more; name them with --images"
        )

    @property
    def has_images(self) -> bool:
        """Whether there are images, to look at or to learn from."""
        return self._images is not None or self.record.images is not None

    @cached_property
    def features(self) -> VectorFile | None:
        """The features of a run that was trained on such; None for a run on images."""
        record, features = self.record.features, self.given_features
        if record is None:
            if features is not None:
                raise FileError(self.folder, "was trained on images; name these, not --features")
            return None
        if features is None:
            return record.open(self.folder)
        if features.dimension != record.dimension:
            raise FileError(
                features.path,
                f"has vectors of {features.dimension:,} numbers, and {self.folder} was trained on "
                f"{record.dimension:,}: they must come from the same model",
            )
        return features

    @cached_property
    def teachers(self) -> list[Teacher]:
        """The scores of the run's teachers for its classes: those that were given, or its own."""
        record = self.record
        if not self.given_teachers:
            return [
                replace(read_teacher(self._file(str(self._teacher_file(n)))), path=Path(one.name))
                for n, one in enumerate(record.teachers)
            ]
        if len(self.given_teachers) != len(record.teachers):
            names = ", ".join(teacher.name for teacher in record.teachers) or "none"
            raise FileError(
                self.folder,
                f"was trained with {count(len(record.teachers), 'teacher')} ({names}); give as "
                "many --teacher files, in this order",
            )
        return [teacher.for_classes(record.classes) for teacher in self.given_teachers]

    def keep_teachers(self, classes: Sequence[str]) -> None:
        """Write a copy of the scores of the given teachers for these classes."""
        for number, teacher in enumerate(self.given_teachers):
            path = self.folder / self._teacher_file(number)
            path.parent.mkdir(exist_ok=True)
            teacher.for_classes(classes).write(path)

    @staticmethod
    def _teacher_file(number: int) -> Path:
        return Path("teachers") / f"{number + 1}.parquet"

    @cached_property
    def selection(self) -> Selection:
        """Which images and classes the run was trained, validated and tested on."""
        record, file = self.record, self._file("labels.arrow")
        if file_hash(file) != record.labels_file:
            raise FileError(file, "damaged: not the labels that the run was trained on")
        labels, path = LabelTable.open(file), self._file("split.safetensors")
        selection = load_selection(path, labels, record.classes, record.side)
        sizes = len(selection.train), len(selection.val), len(selection.reserved)
        if sizes != (record.train_rows, record.val_rows, record.reserved_rows):
            raise FileError(path, "does not fit run.json; train again")
        return selection

    def task(self) -> Task:
        """What the method could look at before training started."""
        return make_task(self.selection, self.settings, self.folder)

    def classifier(self) -> Classifier:
        """The trained model, on the CPU."""
        model, _ = self.build(self._finished(), pretrained=False)
        weights = self._weights("best.safetensors")
        if self.settings.frozen != "nothing":
            frozen = self._weights(_FROZEN)
            weights |= {f"backbone.{name}": value for name, value in frozen.items()}
        with must_fit(self.folder):
            model.load_state_dict(weights)
        return model.eval()

    def frozen_weights(self) -> bool:
        """Whether the run has kept the frozen part of its backbone."""
        return (self.folder / _FROZEN).is_file()

    def load_frozen(self, model: Classifier) -> None:
        """Give a model the frozen part that the run has kept."""
        with must_fit(self.folder / _FROZEN):
            model.backbone.load_state_dict(load_state(self.folder / _FROZEN), strict=False)

    def method(self) -> Method:
        """The method as it was at the end of the training."""
        if self.settings.method == AUTO:
            raise InputError(f"{self.folder}: auto combines several methods, it has no loss")
        _, method = self.build(self._finished(), pretrained=False)
        method.prepare(self.task())
        with must_fit(self.checkpoint):
            method.load_state_dict(self.last_state()["method"])
        return method.eval()

    def implements(self, extension: type[object]) -> bool:
        """Whether the method of the run has an extension; ``auto`` has none."""
        kind = METHODS.get(self.settings.method)
        return kind is not None and issubclass(kind, extension)

    def artifacts(self) -> Artifacts:
        """What the method kept for reports."""
        if not self.implements(HasArtifacts):
            return Artifacts()
        method = self.method()
        assert isinstance(method, HasArtifacts)
        return method.artifacts()

    def build(self, record: Record, *, pretrained: bool) -> tuple[Classifier, Method]:
        """A new model and its method; without ``pretrained`` the weights are to be loaded."""
        settings = record.settings
        if settings.method == AUTO:
            settings = settings.model_copy(update={"method": FEATURES_ONLY})
        copies = {name: str(path) for name, path in self._inputs(settings).items()}
        model, method = build(
            settings.model_copy(update={"options": settings.options | copies}),
            record.classes,
            pretrained=pretrained,
            features=None if record.features is None else record.features.dimension,
            teachers=len(record.teachers),
        )
        if record.members:
            model.head = ensemble_head(model.backbone.channels, record.classes, record.members)
        return model, method

    def keep_inputs(self, settings: Settings) -> None:
        """Copy the files that settings of the method name; refuse those that have changed."""
        started = self.exists()
        for name, value in settings.options.items():
            source, copy = Path(str(value)), self._input(name)
            if name not in METHODS[settings.method].files or not source.is_file():
                continue
            if started and copy.is_file() and copy.read_bytes() != source.read_bytes():
                raise FileError(source, f"has changed since {self.folder} was started with it")
            copy.parent.mkdir(exist_ok=True)
            with atomic_file(copy) as stream:  # a part of it would look like another file
                stream.write(source.read_bytes())

    def _input(self, name: str) -> Path:
        return self.folder / "inputs" / name

    def _inputs(self, settings: Settings) -> dict[str, Path]:
        """Copies of files that settings of the method name; none before the run is started."""
        if not self.exists():
            return {}
        files = {name: self._input(name) for name in METHODS[settings.method].files}
        return {name: path for name, path in files.items() if path.is_file()}

    def last_state(self) -> dict[str, Any]:
        """The checkpoint: ``"model"`` and ``"method"`` after the last step, and more."""
        state = self._weights(self.checkpoint.name)
        if not all(isinstance(state.get(part), dict) for part in ("model", "method")):
            raise FileError(self.checkpoint, "holds no model and method")
        return state

    def load_end(self, model: Classifier) -> None:
        """Load the weights of the end of the training, which may not be those that are kept."""
        with must_fit(self.checkpoint):
            model.load_trained(self.last_state()["model"])

    def has_stage(self, stage: int) -> bool:
        """Whether there are weights of a stage, counted from 1; there are none of the last one."""
        return stage_file(self.folder, stage).is_file()

    def load_stage(self, model: Classifier, stage: int) -> None:
        """Load the weights that a stage, counted from 1, ended with."""
        path = stage_file(self.folder, stage)
        with must_fit(path):
            model.load_trained(self._weights(str(path.relative_to(self.folder))))

    def _finished(self) -> Record:
        record = self.record
        if not record.finished:
            raise FileError(
                self.folder, "the run is not finished; go on with the same call and --resume"
            )
        return record

    def _weights(self, name: str) -> dict[str, Any]:
        path = self._file(name)
        weights = load_state(path)
        if not isinstance(weights, dict):
            raise FileError(path, "holds no weights")
        return weights

    def _file(self, name: str) -> Path:
        """A file of the run, which must be there."""
        if not self.exists():
            raise FileError(self.folder, "there is no run here (run.json is missing)")
        if not (self.folder / name).is_file():
            raise FileError(self.folder, f"{name} is missing; train again")
        return self.folder / name


def _first_existing(paths: list[Path]) -> Path | None:
    return next((path for path in paths if path.exists()), None)


def _checksum(content: dict[str, Any]) -> str:
    """A hash of ``run.json`` without its checksum."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def make_task(selection: Selection, settings: Settings, folder: Path) -> Task:
    """What a method may look at before training starts."""
    return Task(
        selection.training,
        selection.validation,
        settings.epochs,
        folder,
        selection.side_information,
    )


def load(run: Run | str | os.PathLike[str]) -> Classifier:
    """The trained model of a run; nothing in a run's folder is ever executed."""
    return (run if isinstance(run, Run) else Run(run)).classifier()


def weights_hash(settings: Settings) -> str | None:
    """A hash of the files that ``--weights`` names; None if it names none."""
    joined = settings.weights.split("+") if "+" in settings.backbone else [settings.weights]
    hashes = [file_hash(Path(name)) for name in joined if Path(name).is_file()]
    return "+".join(hashes) or None


def file_hash(path: Path) -> str:
    """A hash of the content of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()
