"""Compare candidates on images that they were not trained on."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from partlabel.base import processes
from partlabel.base.errors import time_left
from partlabel.images.batches import Rows
from partlabel.training.auto.criterion import Criterion, mean
from partlabel.training.auto.folds import Folds
from partlabel.training.auto.greedy import Logits
from partlabel.training.auto.leaderboard import Line
from partlabel.training.auto.portfolio import Candidate
from partlabel.training.auto.trials import Laboratory, Part, Trial
from partlabel.training.monitor import Monitor

_ALL = "all"  # the part of a trial that is trained on all training images


@dataclass
class Comparison:
    """Trains candidates on folds, or on all images if a holdout split is there to compare on.

    Args:
        laboratory: trains, and keeps results.
        criterion: on the labels of the images that are scored.
        folds: of the training images; None to compare on the holdout.
        train: number of training images, which come before the others.
        scored: the images to score after a training on all training images.
        monitor: shows the progress.
        lines: what was found out about each candidate.
        budget, done: number of trainings, for the progress.
    """

    laboratory: Laboratory
    criterion: Criterion
    folds: Folds | None
    train: int
    scored: Rows
    monitor: Monitor
    lines: dict[Candidate, Line] = field(default_factory=dict)
    budget: int = 0
    done: int = 0

    @property
    def parts(self) -> int:
        """The number of trainings that a candidate needs to be compared."""
        return 1 if self.folds is None else int(self.folds.max()) + 1

    def measure(self, candidate: Candidate, folds: int) -> float:
        """The score of a candidate after trainings on the first so many folds."""
        parts = self._trials(candidate, folds)
        errors = [trial.error for trial in parts if trial.error]
        score = math.nan
        if not errors:
            rows = np.concatenate([self._held_out(fold) for fold in range(folds)])
            logits = torch.cat([trial.logits for trial in parts]).numpy()
            score = mean(self.criterion(logits, rows))
        recipe, seconds = candidate.recipe, sum(trial.seconds for trial in parts)
        line = Line(
            candidate.label,
            recipe.method,
            recipe.head,
            candidate.decay,
            self.criterion.name,
            score,
            folds,
            seconds,
            error="; ".join(errors[:1]),
        )
        self.done += folds - (self.lines[candidate].folds if candidate in self.lines else 0)
        self.lines[candidate] = line
        outcome = f"failed, {line.error}" if errors else f"{line.criterion} {100 * score:.2f}"
        on = f" on {folds} of {self.parts} folds" if self.parts > 1 else ""
        done = f"{self.done} of {self.budget}{self._time_left()}"
        self.monitor.note(f"  {done}: {candidate.label}{on}: {outcome}")
        return score

    def _time_left(self) -> str:
        """For the rest of the budget, if it is used up, by the trainings that are done."""
        if not 0 < self.done < self.budget:
            return ""
        seconds = sum(line.seconds for line in self.lines.values()) / self.done
        return time_left(seconds * (self.budget - self.done) / processes.size())

    def leave_out(self, candidate: Candidate, error: str) -> None:
        """Note that a candidate fails on all training images, though it did not on folds."""
        self.lines[candidate] = replace(self.lines[candidate], error=error)
        self.monitor.note(f"{candidate.label} is left out: {error}")

    def _held_out(self, fold: int) -> Rows:
        """The rows of the criterion that a fold scores."""
        if self.folds is None:
            return np.arange(len(self.scored))
        return np.flatnonzero(self.folds == fold)

    def _trials(self, candidate: Candidate, folds: int) -> list[Trial]:
        """The trainings on the first so many folds."""
        return self.laboratory.trials(candidate, [self._part(fold) for fold in range(folds)])

    def _part(self, fold: int) -> Part:
        if self.folds is None:
            return self._all
        train = np.flatnonzero(self.folds != fold)
        return Part(f"fold{fold}", train, self._held_out(fold))

    @property
    def _all(self) -> Part:
        return Part(_ALL, np.arange(self.train), self.scored)

    def refit(self, candidate: Candidate) -> Trial:
        """A training on all training images."""
        return self.laboratory.trials(candidate, [self._all])[0]

    def logits(self, candidate: Candidate) -> Logits:
        """The logits of a candidate for all images of the criterion, none of which it has seen."""
        logits = np.empty(self.criterion.labels.shape, dtype=np.float32)
        for fold, trial in enumerate(self._trials(candidate, self.parts)):
            logits[self._held_out(fold)] = trial.logits.numpy()
        return logits
