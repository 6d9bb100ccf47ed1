"""Train one candidate on some of the training images, once: the result is kept in the run."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from partlabel.base.errors import JobError, PartlabelError, StoppedError
from partlabel.base.processes import take_turns
from partlabel.base.randomness import key
from partlabel.images.batches import Rows
from partlabel.labels import LabelTable
from partlabel.learning.methods import METHODS, Task
from partlabel.models import Backbone, Classifier
from partlabel.models.heads import Linear
from partlabel.models.prediction import iterate_logits
from partlabel.training.auto.greedy import Logits, spread
from partlabel.training.auto.held_features import FeatureKind, HeldFeatures, kind_of
from partlabel.training.auto.members import make_member_head
from partlabel.training.auto.portfolio import Candidate
from partlabel.training.auto.teaching import with_likely_positives
from partlabel.training.checkpoint import load_state, save_state
from partlabel.training.devices import make_fabric
from partlabel.training.examples import Examples
from partlabel.training.settings import Settings
from partlabel.training.trainer import Trainer

_PREDICTED = 512  # images that are scored at a time


@dataclass(frozen=True)
class Trial:
    """The result of a training.

    Args:
        logits: [n, C] of the images that were scored, NaN for unreadable ones.
        head: the weights of the trained head.
        seconds: that the training took.
        error: why it failed; None if it did not.
    """

    logits: Tensor
    head: dict[str, Tensor]
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Part:
    """The images of a training.

    Args:
        name: short and unique, for file names.
        train: rows to train on, of the training table.
        scored: rows to score, of the features.
    """

    name: str
    train: Rows
    scored: Rows


def evidence_for(part: Part, evidence: LabelTable, table: LabelTable) -> LabelTable:
    """The evidence without labels of images outside of the part, since these test the result.

    Args:
        part: the images of a training.
        evidence: labels of all training images, or of a holdout, which is not changed.
        table: the labels of all training images.
    """
    return evidence.subset(part.train) if evidence.ids == table.ids else evidence


class Silent:
    """Shows nothing of the progress of a training."""

    def begin(self, epoch: int, epochs: int, steps: int, done: int) -> None:
        """An epoch begins."""

    def step(self, figures: dict[str, float], images: int) -> None:
        """A step is done."""

    def end(self, record: dict[str, Any]) -> None:
        """An epoch is done."""

    def saved(self, history: list[dict[str, Any]]) -> None:
        """A checkpoint was written."""

    def note(self, message: str) -> None:
        """Something worth knowing."""

    def warn(self, message: str) -> None:
        """Something the user should act on."""


class Laboratory:
    """Trains candidates and keeps the results in a folder, so that none is trained twice.

    Args:
        folder: of the results.
        settings: of the run; candidates take images, backbone and seed from it.
        table: labels of the training images.
        evidence: labels that show how many labels are present, for methods that estimate it: of the
            training images, or of a holdout.
        features: of all images, by kind.
        backbone: the frozen network, which the models of all trainings share.
        device: to train on.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        table: LabelTable,
        evidence: LabelTable,
        features: dict[FeatureKind, HeldFeatures],
        backbone: Backbone,
        device: str = "cpu",
    ) -> None:
        self.folder, self.settings = folder, settings
        self.table, self.evidence = table, evidence
        self.features, self.backbone = features, backbone
        self.fabric = make_fabric(device, settings.precision)

    def trial(self, candidate: Candidate, part: Part) -> Trial:
        """Train a candidate and score images, unless the folder has the result."""
        path = self._file(candidate, part)
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            save_state(path, vars(self._attempt(candidate, part, path.with_suffix(""))))
        state = load_state(path)
        return Trial(state["logits"], state["head"], state["seconds"], state["error"])

    def trials(self, candidate: Candidate, parts: Sequence[Part]) -> list[Trial]:
        """A training for each part; several processes share them out."""
        done: dict[int, Trial] = {}
        for number, trial in take_turns(lambda n: self.trial(candidate, parts[n]), len(parts)):
            path = self._file(candidate, parts[number])
            if not path.is_file():  # another process has trained it
                path.parent.mkdir(parents=True, exist_ok=True)
                save_state(path, vars(trial))
            done[number] = trial
        return [done[number] for number in range(len(parts))]

    def _file(self, candidate: Candidate, part: Part) -> Path:
        return self.folder / f"{key(candidate.name):016x}-{part.name}.safetensors"

    def _attempt(self, candidate: Candidate, part: Part, work: Path) -> Trial:
        """The result of a training; one that fails is a result too."""
        start = time.monotonic()
        try:
            head = self._train(candidate, part, work)
            logits = self._score(head, self._features_of(candidate), part.scored)
            return Trial(logits, head.state_dict(), time.monotonic() - start)
        except StoppedError:
            raise
        except PartlabelError as error:
            failure = str(error)
        except (RuntimeError, ArithmeticError, MemoryError) as error:  # of torch, such as no memory
            failure = f"{type(error).__name__}: {error}"
        return Trial(torch.empty(0), {}, time.monotonic() - start, failure)

    def _train(self, candidate: Candidate, part: Part, work: Path) -> nn.Module:
        """Train a head, or go on with a training that was stopped."""
        settings, table = candidate.settings(self.settings), self._labels(candidate, part)
        method = METHODS[settings.method](**settings.options)
        torch.manual_seed(key(settings.seed, "init"))
        head = self._new_head(candidate)
        model = Classifier(self.backbone, head, list(table.classes))
        work.mkdir(exist_ok=True)
        try:
            method.prepare(Task(table, self._evidence_for(part), settings.epochs, work))
            inputs = self._features_of(candidate).part(part.train)
            rows = np.arange(len(part.train))
            examples = Examples(table, inputs, rows), Examples(table, inputs, rows[:0])
            checkpoint = work / "last.safetensors"
            trainer = Trainer(
                model, method, *examples, settings, checkpoint, Silent(), fabric=self.fabric
            )
            trainer.fit()
        except StoppedError:
            raise  # the checkpoint is kept
        except BaseException:
            shutil.rmtree(work)
            raise
        shutil.rmtree(work)
        return head

    def _labels(self, candidate: Candidate, part: Part) -> LabelTable:
        """The labels of the images to train on, with those that teachers add."""
        table = self.table.subset(part.train)
        if not candidate.teachers:
            return table
        lessons = [self._lesson(teacher, part) for teacher in candidate.teachers]
        logits = np.mean([lesson / spread(lesson) for lesson in lessons], axis=0)
        return with_likely_positives(table, logits, self._evidence_for(part), candidate.share)

    def _evidence_for(self, part: Part) -> LabelTable:
        return evidence_for(part, self.evidence, self.table)

    def _lesson(self, teacher: Candidate, part: Part) -> Logits:
        """The logits of a teacher for the images that it was trained on."""
        lesson = self.trial(teacher, part)
        if lesson.error is not None:
            raise JobError(f"its teacher failed: {lesson.error}")
        head = self._new_head(teacher)
        head.load_state_dict(lesson.head)
        return self._score(head, self._features_of(teacher), part.train).numpy()

    def _features_of(self, candidate: Candidate) -> HeldFeatures:
        return self.features[kind_of(candidate.settings(self.settings))]

    def _score(self, head: nn.Module, features: HeldFeatures, rows: Rows) -> Tensor:
        model = Classifier(self.backbone, head, list(self.table.classes)).to(self.fabric.device)
        logits = torch.full((len(rows), len(self.table.classes)), float("nan"))
        part = features.part(rows)
        for places, outputs in iterate_logits(model, part, np.arange(len(rows)), _PREDICTED):
            logits[torch.from_numpy(places)] = outputs.cpu()
        return logits

    def _new_head(self, candidate: Candidate) -> nn.Module:
        """The head of a candidate, for features that are in memory."""
        settings = candidate.settings(self.settings)
        options = {k: v for k, v in settings.head_options.items() if k != "power"}
        settings = settings.model_copy(update={"head_options": options})
        return make_member_head(settings, self.backbone.channels, len(self.table.classes))

    def head_of(self, candidate: Candidate, trial: Trial) -> nn.Module:
        """The trained head of a trial, for features as the backbone gives them."""
        settings = candidate.settings(self.settings)
        head = make_member_head(settings, self.backbone.channels, len(self.table.classes))
        head.load_state_dict(trial.head)
        shift = self._features_of(candidate).shift
        if shift is not None and isinstance(head, Linear):
            layer = head.classifier
            with torch.no_grad():
                layer.bias.sub_(layer.weight.double() @ shift.to(layer.weight.device))
        return head.eval()
