"""The one training loop: epochs, steps, validation, checkpoints. It knows no method by name.

Nothing random carries over from one step to the next (see ``base.randomness``), so a run that is
killed at any moment and resumed ends in the same bits as one that is not.
"""

import math
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base import processes
from partlabel.base.choices import WHOLE_BATCH
from partlabel.base.errors import FileError, JobError, PartlabelError, StoppedError, some
from partlabel.base.interruption import interruptible
from partlabel.base.randomness import key
from partlabel.images.batches import Batch, Inputs, Rows
from partlabel.images.views import seed_generator
from partlabel.learning.extensions import FollowsStages, HasTeacher, LooksAhead
from partlabel.learning.methods import Method, Stage
from partlabel.metrics import Evaluation, evaluate_cells
from partlabel.models import Classifier
from partlabel.models.prediction import Forward, Predictions, collect_known, iterate_logits
from partlabel.training.best_epoch import BestEpoch, check_rows
from partlabel.training.checkpoint import load_state, save_state, stage_file
from partlabel.training.devices import make_fabric
from partlabel.training.ema import follow, make_teacher
from partlabel.training.examples import Examples
from partlabel.training.optimizers import restore
from partlabel.training.progress import Progress, Watcher
from partlabel.training.settings import Settings
from partlabel.training.sharing import Shares, check_equal, drawing_apart, gather_outputs
from partlabel.training.steps import DivergedError, Objective, Steps
from partlabel.training.whole_set import WholeSet, whole_set

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_SAVE_EVERY = 10.0  # seconds between checkpoints, at least
_QUICK = 0.1  # seconds that writing a checkpoint may take; else there are fewer of them
_LOG_EVERY = 8  # steps between figures that take time and only serve the log


class InterruptedTrainingError(StoppedError):
    """A signal asked the training to stop; the checkpoint is saved."""


class Trainer:
    """Trains a model by a method.

    Args:
        model, method: what is trained.
        train, val: the examples; validation decides which epoch is kept.
        settings: how to train.
        checkpoint: the file to save to and to resume from; None to save nothing.
        watcher: shows the progress.
        members: the trainers of the other members of an ensemble.
        workers: processes that decode images; None for a number that suits this computer.
        fabric: the device and the precision; None for the best device.
    """

    def __init__(
        self,
        model: Classifier,
        method: Method,
        train: Examples,
        val: Examples,
        settings: Settings,
        checkpoint: Path | None,
        watcher: Watcher,
        members: Sequence["Trainer"] = (),
        workers: int | None = None,
        fabric: "Fabric | None" = None,
    ) -> None:
        self.settings, self.train_set, self.val_set = settings, train, val
        self.checkpoint, self.watcher = checkpoint, watcher
        self.members, self.workers = members, workers
        self.fabric = fabric or make_fabric(precision=settings.precision)
        self.model, self.method = model, method
        self.objective = Objective(model, method).to(self.fabric.device)
        self.shares = Shares()
        gather_outputs(model, self.shares)
        self.stages = method.stages(settings.epochs, settings.patience)
        if any(stage.by_class for stage in self.stages):
            check_rows(model.head)
        self.first_weights = model.trained_weights() if self.stages[0].aside else {}
        own = method.ema if isinstance(method, HasTeacher) else None
        self.ema = own if settings.ema is None else settings.ema
        self.teacher = None if self.ema is None else make_teacher(model)
        self.progress = Progress()
        self.best = BestEpoch(settings.keep, self._class_scores)
        self.broken: dict[int, str] = {}
        self._started, self._saved_at, self._pause = False, time.monotonic(), _SAVE_EVERY

    # -- the loop ----------------------------------------------------------------------------------

    def fit(self) -> Progress:
        """Train to the end, from the checkpoint if there is one; leaves the best weights."""
        self.advance()
        self.model.load_state_dict(self.best.weights, strict=False)
        return self.progress

    def advance(self, epoch: int | None = None) -> None:
        """Train until this many epochs are done, None for all of them."""
        self._start()
        progress = self.progress
        with interruptible() as self._received_signal:
            while progress.stage < len(self.stages) and (epoch is None or progress.epoch < epoch):
                self._train_epoch()
                done = progress.stage == len(self.stages) or progress.epoch == epoch
                self._save(force=done)
        self._check_weights()

    def _train_epoch(self) -> None:
        progress, stage = self.progress, self._stage
        batches = self._batches(stage)
        epochs = sum(part.epochs for part in self.stages)
        self.watcher.begin(progress.epoch, epochs, len(batches), progress.step)
        if progress.step == 0:
            if progress.stage_epoch == 0 and isinstance(self.method, LooksAhead):
                self._seed_before_epoch()
                with closing(self._load(batches)) as first:
                    self.method.look_ahead(progress.stage, self.model.eval(), first)
            self._seed_before_epoch()
            figures = self.method.before_epoch(progress.epoch, self._predict_before_epoch)
            progress.notes = dict(figures)
        self.objective.train()
        if stage.head_only:
            self.model.backbone.eval()
        start, images = time.monotonic(), 0
        steps: Iterator[Batch] | Iterator[WholeSet] = self._load(batches[progress.step :])
        if self._is_whole(stage) and progress.step == 0:
            steps = whole_set(self.train_set, self.method, self._load)
        for batch in steps:
            done = progress.stage_epoch * len(batches) + progress.step
            self._train_step(batch, done / max(stage.epochs * len(batches) - 1, 1))
            images += len(batch)
            progress.step += 1
            self._save()
            if number := self.shares.stopping(self._received_signal):
                self._save(force=True)
                raise InterruptedTrainingError(
                    f"stopped in epoch {progress.epoch + 1}; go on with the same call and --resume",
                    number,
                )
        if not progress.total_steps:
            raise JobError("no training image could be read")
        speed = images / max(time.monotonic() - start, 1e-9)
        self._end_epoch(self._validated_record(speed))

    def _train_step(self, batch: Batch | WholeSet, position: float) -> None:
        """One step of the optimiser; ``position`` is the share of the stage that is over."""
        progress = self.progress
        if not len(batch):
            return
        try:
            figures = self.steps.take(batch, position, progress)
        except DivergedError as error:
            self._check_weights()
            raise self._located(error, batch) from error
        progress.total_steps += 1
        if self.teacher is not None:
            progress.teacher_steps += 1
            follow(self.teacher, self.model, self.ema or 0.0, progress.teacher_steps)
        progress.add(figures)
        self.watcher.step(figures, len(batch))

    def _check_weights(self) -> None:
        """Raise an error if weights are not finite, so that no checkpoint ever has such weights."""
        if not self.steps.has_finite_weights():
            raise JobError(
                f"the weights became infinite in epoch {self.progress.epoch + 1}, before step "
                f"{self.progress.step + 1}; {self._kept()}. A smaller --lr usually helps"
            )

    def _kept(self) -> str:
        """What is left of a training that failed."""
        is_saved = self.checkpoint is not None and self.checkpoint.exists()
        return "the last good checkpoint is kept" if is_saved else "nothing is kept"

    def _located(self, error: DivergedError, batch: Batch | WholeSet) -> JobError:
        """An error that also says where in the training it happened."""
        names = some([self.train_set.table.ids[int(row)] for row in batch.rows], most=8)
        return JobError(
            f"{error} in epoch {self.progress.epoch + 1}, step {self.progress.step + 1}, on images "
            f"{names}; {self._kept()}. A smaller --lr usually helps"
        )

    # -- the end of epochs and stages --------------------------------------------------------------

    def _validated_record(self, speed: float) -> dict[str, Any]:
        """The line of the log: means over steps, figures from before the epoch, validation."""
        progress = self.progress
        record: dict[str, Any] = {"epoch": progress.epoch + 1, "stage": progress.stage + 1}
        record["lr"] = self.steps.optimizer.param_groups[0]["lr"]
        record |= progress.notes
        record |= progress.means()
        record["val_mAP"] = self._validate(self.model)
        if self.teacher is not None:
            record["ema_val_mAP"] = self._validate(self.teacher)
        return record | {"images_per_second": speed}

    def _end_epoch(self, record: dict[str, Any]) -> None:
        progress, stage = self.progress, self._stage
        check_equal(self.model, progress.epoch + 1)
        progress.history.append(record)
        score, by_teacher = record["val_mAP"], False
        if record.get("ema_val_mAP", -math.inf) > score:
            score, by_teacher = record["ema_val_mAP"], True
        kept = self.teacher if by_teacher and self.teacher is not None else self.model
        self.best.offer(kept, score, stage, progress)
        if score > progress.stage_best or math.isnan(score):
            progress.stage_best, progress.stale = score, 0
        else:
            progress.stale += 1
            if self.steps.schedule == "plateau":
                progress.rate *= self.settings.plateau
        self.watcher.end(record)
        progress.end_epoch()
        early_stop = stage.patience is not None and progress.stale >= stage.patience
        if progress.converged and progress.stage_epoch < stage.epochs:
            self.watcher.note(f"converged after {progress.stage_epoch} of {stage.epochs} epochs")
        if progress.stage_epoch >= stage.epochs or early_stop or progress.converged:
            progress.end_stage()
            if progress.stage < len(self.stages):
                self._change_stage(stage)

    def _change_stage(self, before: Stage) -> None:
        self.model.load_state_dict(self.best.weights, strict=False)
        if isinstance(self.method, FollowsStages):
            self.method.after_stage(self.progress.stage - 1, self._predict_training)
        self.best.begin_stage(self._stage, before, self.model, self.progress)
        if before.aside:
            self.model.load_state_dict(self.first_weights, strict=False)
        elif self.checkpoint is not None:
            path = stage_file(self.checkpoint.parent, self.progress.stage)
            path.parent.mkdir(exist_ok=True)
            save_state(path, self.best.weights)
        if self.teacher is not None:  # it starts again as a copy of the model
            self.teacher, self.progress.teacher_steps = make_teacher(self.model), 0
        self._begin_stage()

    def _begin_stage(self) -> None:
        stage = self._stage
        for parameter in self.model.backbone.trained_parameters():
            parameter.requires_grad_(not stage.head_only)
        if isinstance(self.method, FollowsStages):
            self.method.begin_stage(self.progress.stage, self.model)
        self.steps = Steps(self.objective, stage, self.settings, self.fabric, self.shares)

    @property
    def _stage(self) -> Stage:
        return self.stages[self.progress.stage]

    # -- inputs and predictions --------------------------------------------------------------------

    def _is_whole(self, stage: Stage) -> bool:
        return (stage.optimizer or self.settings.optimizer) == WHOLE_BATCH

    def _batches(self, stage: Stage) -> list[Rows]:
        if self._is_whole(stage):
            return [self.train_set.rows]  # in one order, so that rounding stays the same
        settings = self.settings
        return self.train_set.shuffled_batches(settings.seed, self.progress.epoch, settings.batch)

    def _load(self, batches: list[Rows]) -> Generator[Batch]:
        views, epoch, device = self.method.views, self.progress.epoch, self.fabric.device
        source, signal = self.train_set.inputs, self._received_signal
        moves = device.type != "cpu"
        with closing(
            self.shares.load(source, batches, views, epoch, self.workers, signal)
        ) as parts:
            for step, inputs in enumerate(parts, start=self.progress.step):
                self._note_broken(inputs)
                rows, labels = torch.from_numpy(inputs.rows), self.train_set.labels_of(inputs.rows)
                views_of = inputs.views
                if moves:
                    rows, labels = rows.to(device), labels.to(device)
                    views_of = {name: view.to(device) for name, view in views_of.items()}
                logged = step % _LOG_EVERY == 0 or self._is_whole(self._stage)
                yield Batch(rows, labels.float(), views_of, self.teacher, logged=logged)

    def _note_broken(self, inputs: Inputs) -> None:
        for row, message in inputs.broken.items():
            if row not in self.broken:
                self.broken[row] = message
                self.watcher.warn(f"left out: {message}")

    def _predict_before_epoch(self, forward: Forward | None = None) -> Predictions:
        """As :meth:`_predict_training`, after a checkpoint.

        A decision made from these predictions can then be made again after a stop, and no member
        is ahead of the run.
        """
        self._save(force=True)
        return self._predict_training(forward)

    def _predict_training(self, forward: Forward | None = None) -> Predictions:
        """Predictions for the training images: the mean over all members of an ensemble."""
        for member in self.members:
            member.advance(self.progress.epoch)
            if member.progress.epoch > self.progress.epoch and member.checkpoint is not None:
                raise JobError(
                    f"{member.checkpoint.parent}: is further than the run it belongs to; "
                    "start again in a new folder"
                )
        if self.members:
            self._seed_before_epoch()  # again: whether members had to train must not matter
        models = [trainer.model.eval() for trainer in (self, *self.members)]
        if forward is not None:  # it may draw, and must not depend on who computes which batch
            forward = drawing_apart(forward, self.settings.seed, self.progress.epoch)

        def mean_output(_: Classifier, inputs: Tensor) -> Tensor:
            outputs = [m(inputs) if forward is None else forward(m, inputs) for m in models]
            return torch.stack(outputs).mean(dim=0)

        return self.logits_of(self.model, self.train_set, mean_output)

    def _seed_before_epoch(self) -> None:
        seed_generator(key(self.settings.seed, "before epoch", self.progress.epoch))

    def logits_of(
        self, model: Classifier, examples: Examples, forward: Forward | None = None
    ) -> Predictions:
        """Rows and logits (or the outputs of ``forward``) of the clean views of examples."""
        return iterate_logits(
            model,
            examples.inputs,
            examples.rows,
            self.settings.batch,
            self.workers,
            forward=forward,
            on_inputs=self._note_broken,
        )

    def _validate(self, model: Classifier) -> float:
        return processes.from_first(self._evaluate(model)["mAP"])

    def _class_scores(self, model: Classifier) -> NDArray[np.float64]:
        """[C] the average precision of each class on validation labels; -1 for one without both."""
        scores = np.asarray(self._evaluate(model).per_class.AP)
        return processes.from_first(np.nan_to_num(scores, nan=-1.0))

    def _evaluate(self, model: Classifier) -> Evaluation:
        cells = collect_known(self.logits_of(model, self.val_set), self.val_set.table)
        if np.isnan(cells.scores).any():
            raise JobError(
                f"the scores became NaN in epoch {self.progress.epoch + 1}; a smaller --lr helps"
            )
        return evaluate_cells(cells)

    # -- checkpoints -------------------------------------------------------------------------------

    def _start(self) -> None:
        """Begin the first stage, or go on from the checkpoint; once."""
        if self._started:
            return
        self._started = True
        self._begin_stage()
        if self.teacher is not None:  # a stage may have set what the model begins with
            self.teacher = make_teacher(self.model)
        if self.checkpoint is not None and self.checkpoint.exists():
            self._restore(self.checkpoint)

    def _save(self, *, force: bool = False) -> None:
        """Write a checkpoint, if the last one is some seconds old or it must be."""
        if self.checkpoint is None:
            return
        start = time.monotonic()
        is_due = processes.is_first() and start - self._saved_at >= self._pause
        if not force and not is_due:
            return
        self._check_weights()
        state = {
            "progress": vars(self.progress),
            "model": self.model.trained_weights(),
            "best": self.best.weights,
            "method": self.method.state_dict(),
            "optimizer": self.steps.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "teacher": {} if self.teacher is None else self.teacher.trained_weights(),
            "broken": self.broken,
        }
        save_state(self.checkpoint, state)
        self.watcher.saved(self.progress.history)
        self._saved_at = time.monotonic()
        self._pause = _SAVE_EVERY * max(1.0, (self._saved_at - start) / _QUICK)

    def _restore(self, checkpoint: Path) -> None:
        state = load_state(checkpoint)
        try:
            self.progress = Progress(**state["progress"])
            self.model.load_trained(state["model"])
            self.method.load_state_dict(state["method"])
            self.best.weights, self.broken = dict(state["best"]), dict(state["broken"])
            if self.teacher is not None:
                self.teacher.load_trained(state["teacher"])
            if self.progress.stage < len(self.stages):
                self._begin_stage()
                restore(self.steps.optimizer, state["optimizer"])
                self.fabric.strategy.precision.load_state_dict(state.get("precision", {}))
        except PartlabelError:
            raise
        except (RuntimeError, TypeError, AttributeError, KeyError, ValueError) as error:
            raise FileError(checkpoint, f"does not fit the training ({error})") from error
