"""How far a training is, and who shows it."""

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

LOGGED = ("epoch", "stage", "lr", "val_mAP", "ema_val_mAP", "images_per_second")
"""The columns of the log that every training has; the others are figures of the method."""


@dataclass
class Progress:
    """The position of a training: what a checkpoint needs beside weights and optimiser."""

    stage: int = 0
    stage_epoch: int = 0  # epochs done in this stage
    epoch: int = 0  # epochs done in all
    step: int = 0  # steps done in this epoch
    total_steps: int = 0
    teacher_steps: int = 0  # since the teacher was a copy of the model
    sums: dict[str, float] = field(default_factory=dict)  # over the steps of this epoch
    counts: dict[str, int] = field(default_factory=dict)  # steps that each sum is over
    notes: dict[str, float] = field(default_factory=dict)  # figures from before this epoch
    best: float = -math.inf
    best_epoch: int = -1
    stage_best: float = -math.inf
    class_best: list[float] = field(default_factory=list)  # [C] if classes keep their own epochs
    stale: int = 0  # epochs since the best one of this stage
    rate: float = 1.0  # factor on the learning rate after plateaus
    final_cost: float | None = None  # of the last epoch on all images at once
    converged: bool = False  # whether the last epoch left the cost unchanged
    history: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.sums.keys() != self.counts.keys():
            raise ValueError("sums without the numbers of their steps, as of an earlier version")

    def add(self, figures: dict[str, float]) -> None:
        """Add the figures of a step."""
        for name, value in figures.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> dict[str, float]:
        """The mean of each figure over the steps of this epoch that have it."""
        return {name: total / self.counts[name] for name, total in self.sums.items()}

    def end_epoch(self) -> None:
        """Go to the next epoch."""
        self.epoch, self.stage_epoch, self.step = self.epoch + 1, self.stage_epoch + 1, 0
        self.sums, self.counts, self.notes = {}, {}, {}

    def end_stage(self) -> None:
        """Go to the next stage."""
        self.stage, self.stage_epoch, self.stale, self.rate = self.stage + 1, 0, 0, 1.0
        self.stage_best, self.final_cost, self.converged = -math.inf, None, False


class Watcher(Protocol):
    """Shows the progress of a training."""

    def begin(self, epoch: int, epochs: int, steps: int, done: int) -> None:
        """An epoch of this many steps begins, of which some may be done already."""

    def step(self, figures: dict[str, float], images: int) -> None:
        """A step is done."""

    def end(self, record: dict[str, Any]) -> None:
        """An epoch is done."""

    def saved(self, history: list[dict[str, Any]]) -> None:
        """A checkpoint was written, after these epochs."""

    def note(self, message: str) -> None:
        """Something worth knowing."""

    def warn(self, message: str) -> None:
        """Something the user should act on."""
