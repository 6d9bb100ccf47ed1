"""What a run records about itself: the content of ``run.json``, with a checksum."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_file
from partlabel.base.validation import first_problem
from partlabel.metrics import KnownCells
from partlabel.metrics.calibration import Calibration, calibrate_cells
from partlabel.metrics.class_thresholds import balanced_thresholds
from partlabel.models.features.vector_files import VectorFile
from partlabel.training.auto.members import MemberRecord
from partlabel.training.settings import Settings

VERSION = 5


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


class CalibrationRecord(BaseModel):
    """The line [C] per class that turns logits into probabilities, fitted on validation labels."""

    model_config = ConfigDict(extra="forbid")
    slopes: list[float]
    intercepts: list[float]
    own: list[bool]

    @classmethod
    def of(cls, calibration: Calibration) -> "CalibrationRecord":
        """As it is recorded in a run."""
        return cls(
            slopes=calibration.slopes.tolist(),
            intercepts=calibration.intercepts.tolist(),
            own=calibration.own.tolist(),
        )

    def open(self) -> Calibration:
        """The calibration."""
        return Calibration(np.array(self.slopes), np.array(self.intercepts), np.array(self.own))


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
    calibration: CalibrationRecord | None = None


def decision_figures(cells: KnownCells) -> dict[str, Any]:
    """Thresholds and calibration from known validation labels, as fields of a record."""
    if not len(cells):
        return {"thresholds": [], "calibration": None}
    calibration = calibrate_cells(cells)
    thresholds = balanced_thresholds(cells, calibration).tolist()
    return {
        "thresholds": [None if np.isnan(value) else value for value in thresholds],
        "calibration": CalibrationRecord.of(calibration),
    }


def read_record(path: Path) -> Record:
    """Read ``run.json``; a damaged file, or one of another version, is an error."""
    try:
        content = json.loads(path.read_bytes())
        version = content.get("version")
        if version == VERSION:
            if content.pop("checksum", None) != _checksum(content):
                raise ValueError("its checksum does not fit")
            return Record(**content)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(path, f"damaged ({first_line(error)})") from error
    raise FileError(
        path,
        f"this run has version {version}, and this partlabel reads version {VERSION}. Train "
        "again, or use the partlabel that made it",
    )


def write_record(record: Record, path: Path) -> None:
    """Write ``run.json``."""
    with atomic_file(path) as stream:
        content = record.model_dump(mode="json")
        content["checksum"] = _checksum(content)
        stream.write(json.dumps(content, indent=1).encode())


def _first_existing(paths: list[Path]) -> Path | None:
    return next((path for path in paths if path.exists()), None)


def _checksum(content: dict[str, Any]) -> str:
    """A hash of ``run.json`` without its checksum."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    if isinstance(error, ValidationError):
        where, _, message = first_problem(error)
        return f"{'.'.join(map(str, where))}: {message}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def weights_hash(settings: Settings) -> str | None:
    """A hash of the files that ``--weights`` names; None if it names none."""
    joined = settings.weights.split("+") if "+" in settings.backbone else [settings.weights]
    hashes = [file_hash(Path(name)) for name in joined if Path(name).is_file()]
    return "+".join(hashes) or None


def file_hash(path: Path) -> str:
    """A hash of the content of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()
