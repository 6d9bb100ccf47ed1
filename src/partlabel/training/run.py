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

import os
from pathlib import Path
from typing import Any

import numpy as np

from partlabel.base.errors import FileError, InputError, count
from partlabel.base.files import atomic_file
from partlabel.learning.extensions import Artifacts, HasArtifacts
from partlabel.learning.methods import METHODS, Method
from partlabel.models import Classifier
from partlabel.training.auto.members import FEATURES_ONLY, ensemble_head
from partlabel.training.build import build
from partlabel.training.checkpoint import load_state, must_fit, stage_file
from partlabel.training.run_data import RunData
from partlabel.training.run_record import Record
from partlabel.training.settings import AUTO, Settings

_FROZEN = "backbone.safetensors"


class Run(RunData):
    """The folder of a run, and the images, cache and workers to use with it.

    Args:
        folder: as given to ``--out``.
        images: the folder of the images, if it is not where the run remembers it.
        execution: device, cache and number of workers, which change speed but not results.
        features: a file of features to use instead of those that the run was trained on.
        teachers: scores of teachers to use instead of those that the run was trained with.
    """

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

    def classifier(self) -> Classifier:
        """The trained model, on the CPU."""
        model, _ = self.build(self.finished_record(), pretrained=False)
        weights = self._weights("best.safetensors")
        if self.settings.frozen != "nothing":
            frozen = self._weights(_FROZEN)
            weights |= {f"backbone.{name}": value for name, value in frozen.items()}
        with must_fit(self.folder):
            model.load_state_dict(weights)
        record = self.record
        if record.thresholds:
            model.thresholds = np.array(record.thresholds, dtype=np.float64)
        if record.calibration is not None:
            model.calibration = record.calibration.open()
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
        _, method = self.build(self.finished_record(), pretrained=False)
        method.prepare(self.task())
        with must_fit(self.checkpoint):
            method.load_state_dict(self.last_state()["method"])
        return method.eval()

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

    def finished_record(self) -> Record:
        """The content of ``run.json``; an error if the training has not ended."""
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


def load(run: Run | str | os.PathLike[str]) -> Classifier:
    """The trained model of a run; nothing in a run's folder is ever executed."""
    return (run if isinstance(run, Run) else Run(run)).classifier()
