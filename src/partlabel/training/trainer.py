"""The one training loop: batches, steps, validation, checkpoints; no method is special to it.

Nothing random carries over from one step to the next (see ``randomness``), so a run that was killed
at any moment and resumed ends in the same bits as one that was not.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from partlabel.base.errors import InputError, JobError, some
from partlabel.base.interruption import interruptible
from partlabel.base.randomness import key, keys, uniform
from partlabel.images.batches import Batch, Inputs, Rows, in_batches
from partlabel.images.views import seed_generator
from partlabel.labels import LabelTable
from partlabel.learning.methods import WHOLE_BATCH, Method, Stage
from partlabel.metrics import evaluate
from partlabel.models import Classifier
from partlabel.models.prediction import Forward, InputSource, Predictions, gather, predict
from partlabel.training.checkpoint import load_state, save_state, stage_file
from partlabel.training.ema import follow, make_teacher
from partlabel.training.optimizers import make_optimizer, restore, set_rate
from partlabel.training.schedule import factor
from partlabel.training.settings import Settings

_SAVE_EVERY = 5.0  # seconds between checkpoints, at the least
_SMALL_TABLE = 1 << 26  # cells of a table that is kept dense, a byte each


class Watcher(Protocol):
    """Is told how a training goes."""

    def begin(self, epoch: int, epochs: int, steps: int, done: int) -> None:
        """An epoch of so many steps begins, of which some may be done already."""

    def step(self, parts: dict[str, float], images: int) -> None:
        """A step was done."""

    def end(self, record: dict[str, Any]) -> None:
        """An epoch is over."""

    def saved(self, history: list[dict[str, Any]]) -> None:
        """A checkpoint was written, after these epochs."""

    def warn(self, message: str) -> None:
        """Something the user should know."""


@dataclass
class Examples:
    """Rows of a table, and where their inputs come from."""

    table: LabelTable
    inputs: InputSource
    rows: Rows


class Objective(nn.Module):
    """A model and a method as one module: inputs and labels in, cost out."""

    def __init__(self, model: Classifier, method: Method) -> None:
        super().__init__()
        self.model, self.method = model, method

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """What the batch costs."""
        return self.method.loss(self.model, batch)


@dataclass
class Progress:
    """Where a training is: all that a checkpoint needs beside weights and optimiser."""

    stage: int = 0
    stage_epoch: int = 0
    epoch: int = 0
    step: int = 0  # steps done in this epoch
    total_steps: int = 0
    teacher_steps: int = 0  # since the teacher was a copy of the model
    sums: dict[str, float] = field(default_factory=dict)
    best: float = -math.inf
    best_epoch: int = -1
    stage_best: float = -math.inf
    stale: int = 0  # epochs since the best one of this stage
    rate: float = 1.0  # what plateaus have left of the learning rate
    history: list[dict[str, Any]] = field(default_factory=list)


class InterruptedTrainingError(JobError):
    """Someone pressed Ctrl-C; the checkpoint is saved."""


class Trainer:
    """Trains a model by a method.

    Args:
        model, method: what is trained.
        train, val: the examples; validation decides which epoch is kept.
        settings: how.
        checkpoint: the file to save to and to resume from.
        watcher: is told how it goes.
        others: the other members of an ensemble.
    """

    def __init__(
        self,
        model: Classifier,
        method: Method,
        train: Examples,
        val: Examples,
        settings: Settings,
        checkpoint: Path,
        watcher: Watcher,
        others: Sequence["Trainer"] = (),
    ) -> None:
        self.settings, self.train_set, self.val_set = settings, train, val
        self.checkpoint, self.watcher, self.others = checkpoint, watcher, others
        self.fabric = Fabric(accelerator="auto", devices=1)
        self.model, self.method = model, method
        self.objective = Objective(model, method).to(self.fabric.device)
        self.stages = method.stages(settings.epochs, settings.patience)
        self.first_weights = model.trained_weights() if self.stages[0].aside else {}
        ema = settings.ema if settings.ema is not None else method.ema
        self.ema, self.teacher = ema, None if ema is None else make_teacher(model)
        self.id_keys = keys(train.table.ids)[train.rows]
        small = math.prod(train.table.shape) <= _SMALL_TABLE
        self.labels = torch.from_numpy(train.table.dense()) if small else None
        self.progress = Progress()
        self.best_weights: dict[str, Tensor] = {}
        self.broken: dict[int, str] = {}
        self.started, self._saved = False, time.monotonic()

    def fit(self) -> Progress:
        """Train to the end, from the checkpoint if there is one; leaves the best weights."""
        self.advance()
        self.model.load_state_dict(self.best_weights, strict=False)
        return self.progress

    def advance(self, epoch: int | None = None) -> None:
        """Train until so many epochs are over, None for all of them."""
        if not self.started:
            self.started = True
            self._start_stage()
            if self.teacher is not None:  # a stage may have set what the model begins with
                self.teacher = make_teacher(self.model)
            if self.checkpoint.exists():
                self._restore()
        place = self.progress
        with interruptible() as interrupted:
            while place.stage < len(self.stages) and (epoch is None or place.epoch < epoch):
                self._epoch(interrupted)
                self._maybe_save(force=place.stage == len(self.stages) or place.epoch == epoch)

    def _epoch(self, interrupted: Callable[[], bool]) -> None:
        place, stage = self.progress, self.stages[self.progress.stage]
        order = np.argsort(
            uniform(key(self.settings.seed, "order", place.epoch), self.id_keys), kind="stable"
        )
        size = len(order) if self._takes_all(stage) else self.settings.batch
        batches = _training_batches(self.train_set.rows[order], size)
        epochs = sum(part.epochs for part in self.stages)
        self.watcher.begin(place.epoch, epochs, len(batches), place.step)
        if place.step == 0:
            self._seed_before_epoch()
            told = self.method.before_epoch(place.epoch, self._predict_before_epoch)
            place.sums = {f"+{name}": value for name, value in told.items()}
        self.objective.train()
        if stage.head_only:
            self.model.backbone.eval()
        start, seen = time.monotonic(), 0
        for batch in self._batches(batches[place.step :], place.epoch):
            moment = (place.stage_epoch * len(batches) + place.step) / max(
                stage.epochs * len(batches) - 1, 1
            )
            self._step(batch, moment)
            seen += len(batch)
            place.step += 1
            self._maybe_save()
            if interrupted():
                self._maybe_save(force=True)
                raise InterruptedTrainingError(
                    f"stopped in epoch {place.epoch + 1}; go on with the same call and --resume"
                )
        self._end_epoch(stage, len(batches), seen, time.monotonic() - start)

    def _takes_all(self, stage: Stage) -> bool:
        return (stage.optimizer or self.settings.optimizer) == WHOLE_BATCH

    def _step(self, batch: Batch, moment: float) -> None:
        place, settings = self.progress, self.settings
        if not len(batch):
            return
        stage = self.stages[place.stage]
        if not self._takes_all(stage):
            schedule = stage.schedule or settings.schedule
            set_rate(self.optimizer, factor(schedule, moment, settings.lr_warmup) * place.rate)
        asked: list[dict[str, float]] = []

        def ask() -> float:
            """The cost, whose gradients are left; some optimisers ask several times a step."""
            seed_generator(key(settings.seed, "step", place.total_steps))
            parts = self._gradients(batch)
            asked.append({name: float(part.detach()) for name, part in parts.items()})
            return asked[-1]["loss"]

        self.optimizer.step(ask)
        place.total_steps += 1
        if self.teacher is not None:
            place.teacher_steps += 1
            follow(self.teacher, self.model, self.ema or 0.0, place.teacher_steps)
        for name, value in asked[0].items():
            place.sums[name] = place.sums.get(name, 0.0) + value
        self.watcher.step(asked[0], len(batch))

    def _gradients(self, batch: Batch) -> dict[str, Tensor]:
        with self.fabric.autocast():
            parts = self._cost(batch)
        loss = float(parts["loss"].detach())
        if not math.isfinite(loss):
            raise self._blown_up(f"the loss became {loss}", batch)
        self.optimizer.zero_grad()
        self.fabric.backward(parts["loss"])
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
        if not math.isfinite(float(norm)):  # before it gets into the weights, and a checkpoint
            raise self._blown_up("the gradient became infinite", batch)
        if self.settings.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(trained, self.settings.clip, norm)
        return parts

    def _cost(self, batch: Batch) -> dict[str, Tensor]:
        try:
            parts: dict[str, Tensor] = self.objective(batch)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise InputError(
                "a batch of one image has no batch statistics at this size; "
                "take a larger --size or --batch, or --frozen"
            ) from error
        return parts

    def _blown_up(self, what: str, batch: Batch) -> JobError:
        place = self.progress
        names = some([self.train_set.table.ids[int(row)] for row in batch.rows], most=8)
        kept = "the last good checkpoint is kept" if self.checkpoint.exists() else "nothing is kept"
        return JobError(
            f"{what} in epoch {place.epoch + 1}, step {place.step + 1}, on images {names}; {kept}. "
            "A smaller --lr usually helps"
        )

    def _end_epoch(self, stage: Stage, steps: int, seen: int, seconds: float) -> None:
        place = self.progress
        record: dict[str, Any] = {"epoch": place.epoch + 1, "stage": place.stage + 1}
        record["lr"] = self.optimizer.param_groups[0]["lr"]
        for name, value in place.sums.items():
            told = name.startswith("+")
            record[name.removeprefix("+")] = value if told else value / max(steps, 1)
        scores = {"val_mAP": self._validate(self.model)}
        if self.teacher is not None:
            scores["ema_val_mAP"] = self._validate(self.teacher)
        record |= scores | {"images_per_second": seen / max(seconds, 1e-9)}
        place.history.append(record)
        best = max(scores, key=lambda name: scores[name])
        # without anything to validate on, the last epoch is the one to keep
        last = math.isnan(scores[best]) or self.settings.keep == "last"
        if scores[best] > place.best or last:
            place.best, place.best_epoch = scores[best], place.epoch
            kept = self.model if best == "val_mAP" or self.teacher is None else self.teacher
            self.best_weights = kept.trained_weights()
        if scores[best] > place.stage_best or math.isnan(scores[best]):
            place.stage_best, place.stale = scores[best], 0
        else:
            place.stale += 1
            if (stage.schedule or self.settings.schedule) == "plateau":
                place.rate *= self.settings.plateau
        self.watcher.end(record)
        place.epoch, place.stage_epoch, place.step = place.epoch + 1, place.stage_epoch + 1, 0
        place.sums = {}
        tired = stage.patience is not None and place.stale >= stage.patience
        if place.stage_epoch >= stage.epochs or tired:
            place.stage, place.stage_epoch, place.stale, place.rate = place.stage + 1, 0, 0, 1.0
            place.stage_best = -math.inf
            if place.stage < len(self.stages):
                self._change_stage(stage)

    def _change_stage(self, before: Stage) -> None:
        self.model.load_state_dict(self.best_weights, strict=False)
        self.method.after_stage(self.progress.stage - 1, self._predict_training)
        if before.aside:
            self.model.load_state_dict(self.first_weights, strict=False)
            self.progress.best, self.progress.best_epoch = -math.inf, -1
        else:
            path = stage_file(self.checkpoint.parent, self.progress.stage)
            path.parent.mkdir(exist_ok=True)
            save_state(path, self.best_weights)
        if self.teacher is not None:  # it follows anew from where the model now is
            self.teacher, self.progress.teacher_steps = make_teacher(self.model), 0
        self._start_stage()

    def _start_stage(self) -> None:
        stage = self.stages[self.progress.stage]
        for parameter in self.model.backbone.upper.parameters():
            parameter.requires_grad_(not stage.head_only)
        self.method.begin_stage(self.progress.stage, self.model)
        lr = self.settings.lr if stage.lr is None else stage.lr
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(
            trained, self.method.parameter_groups(lr), lr, self.settings, stage.optimizer
        )

    def _batches(self, rows: list[Rows], epoch: int) -> Iterator[Batch]:
        views, workers = self.method.views, self.settings.workers
        for found in self.train_set.inputs.batches(rows, views, epoch, workers):
            self._note_broken(found)
            at = torch.from_numpy(found.rows)
            if self.labels is not None:
                labels = self.labels[at]
            else:
                labels = torch.from_numpy(self.train_set.table.dense(found.rows))
            yield Batch(
                at.to(self.fabric.device),
                labels.to(self.fabric.device, torch.float32),
                {name: view.to(self.fabric.device) for name, view in found.views.items()},
                self.teacher,
            )

    def _note_broken(self, found: Inputs) -> None:
        for row, message in found.broken.items():
            if row not in self.broken:
                self.broken[row] = message
                self.watcher.warn(f"left out: {message}")

    def _predict_before_epoch(self, forward: Forward | None = None) -> Predictions:
        """As below, after a checkpoint: what is decided now can then be decided again.

        It also keeps members from being ahead of the run after a stop.
        """
        self._maybe_save(force=True)
        return self._predict_training(forward)

    def _predict_training(self, forward: Forward | None = None) -> Predictions:
        """The mean over all members, which are brought to the same epoch first."""
        for other in self.others:
            other.advance(self.progress.epoch)
            if other.progress.epoch > self.progress.epoch:
                raise JobError(
                    f"{other.checkpoint.parent}: is further than the run it belongs to; "
                    "start again in a new folder"
                )
        if self.others:
            self._seed_before_epoch()  # again: whether they had to train must not matter
        members = [each.model.eval() for each in (self, *self.others)]

        def ask_all(_: Classifier, seen: Tensor) -> Tensor:
            said = [each(seen) if forward is None else forward(each, seen) for each in members]
            return torch.stack(said).mean(dim=0)

        return self.predict(self.model, self.train_set, ask_all)

    def _seed_before_epoch(self) -> None:
        seed_generator(key(self.settings.seed, "before epoch", self.progress.epoch))

    def predict(
        self, model: Classifier, examples: Examples, forward: Forward | None = None
    ) -> Predictions:
        """Rows and logits (or what ``forward`` gives) of the clean views of examples."""
        settings = self.settings
        return predict(
            model,
            examples.inputs,
            examples.rows,
            settings.batch,
            settings.workers,
            forward=forward,
            seen=self._note_broken,
        )

    def _validate(self, model: Classifier) -> float:
        scores, rows = gather(self.predict(model, self.val_set))
        if not len(rows):
            return math.nan
        if np.isnan(scores).any():
            raise JobError(
                f"the scores became NaN in epoch {self.progress.epoch + 1}; a smaller --lr helps"
            )
        return evaluate(scores, self.val_set.table.dense(rows))["mAP"]

    def _maybe_save(self, *, force: bool = False) -> None:
        if not force and time.monotonic() - self._saved < _SAVE_EVERY:
            return
        state = {
            "progress": vars(self.progress),
            "model": self.model.trained_weights(),
            "best": self.best_weights,
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "teacher": {} if self.teacher is None else self.teacher.trained_weights(),
            "broken": self.broken,
        }
        save_state(self.checkpoint, state)
        self.watcher.saved(self.progress.history)
        self._saved = time.monotonic()

    def _restore(self) -> None:
        state = load_state(self.checkpoint)
        self.progress = Progress(**state["progress"])
        self.model.load_state_dict(state["model"], strict=False)
        self.method.load_state_dict(state["method"])
        self.best_weights, self.broken = state["best"], state["broken"]
        if self.teacher is not None:
            self.teacher.load_state_dict(state["teacher"], strict=False)
        if self.progress.stage < len(self.stages):
            self._start_stage()
            restore(self.optimizer, state["optimizer"])


def _training_batches(rows: Rows, size: int) -> list[Rows]:
    """Batches without a last one of a single image, which has no batch statistics."""
    batches = in_batches(rows, size)
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [np.concatenate(batches[-2:])]
    return batches
