"""The folder of a run: its record, its log, and the labels, images and features of it."""

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from partlabel.base.errors import FileError, count
from partlabel.base.files import atomic_file
from partlabel.images.named_images import are_here, has_any
from partlabel.labels import LabelTable
from partlabel.learning.methods import METHODS, Task
from partlabel.learning.teachers import Teacher, read_teacher
from partlabel.models.features.vector_files import VectorFile
from partlabel.training.arguments import write_config
from partlabel.training.run_record import (
    Record,
    file_hash,
    first_line,
    read_record,
    write_record,
)
from partlabel.training.run_split import Selection, load_selection
from partlabel.training.settings import Execution, Settings


class RunData:
    """The folder of a run, without its model, and the images, cache and workers to use with it.

    Args:
        folder: as given to ``--out``.
        images: where the images are, if not where the run remembers them.
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

    def using(
        self,
        images: str | os.PathLike[str] | None,
        execution: Execution,
        features: VectorFile | None = None,
        teachers: Sequence[Teacher] = (),
    ) -> Self:
        """The same run with other images, features or scores, unless None, and execution."""
        return type(self)(
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
        return read_record(path)

    def write(self, record: Record) -> None:
        """Write ``run.json``, and ``config.yaml``."""
        with atomic_file(self.folder / "config.yaml") as stream:
            stream.write(write_config(record.settings).encode())
        write_record(record, self.folder / "run.json")

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
            raise FileError(path, f"damaged ({first_line(error)})") from error

    @property
    def settings(self) -> Settings:
        """How the run was trained."""
        return self.record.settings

    @property
    def images(self) -> Path:
        """Where the images are: as was given, or as the run remembers."""
        if self._images is not None:
            return self._images
        images = self.record.images
        if images is None:
            raise FileError(self.folder, "was trained on features, without images")
        candidates = list(dict.fromkeys(images.candidates(self.folder)))
        folders = [folder for folder in candidates if are_here(folder)]
        names = self.selection.labels.ids[:5] if len(folders) > 1 else []
        for folder in folders:
            if names and has_any(folder, names):
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

    def implements(self, extension: type[object]) -> bool:
        """Whether the method of the run has an extension; ``auto`` has none."""
        kind = METHODS.get(self.settings.method)
        return kind is not None and issubclass(kind, extension)

    def _file(self, name: str) -> Path:
        """A file of the run, which must be there."""
        if not self.exists():
            raise FileError(self.folder, "there is no run here (run.json is missing)")
        if not (self.folder / name).is_file():
            raise FileError(self.folder, f"{name} is missing; train again")
        return self.folder / name


def make_task(selection: Selection, settings: Settings, folder: Path) -> Task:
    """What a method may look at before training starts."""
    return Task(
        selection.training,
        selection.validation,
        settings.epochs,
        folder,
        selection.side_information,
    )
