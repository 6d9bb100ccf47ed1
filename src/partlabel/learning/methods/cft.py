"""Fine-tuning of one class after the other, on its known labels alone.

[1] Chong et al., Category-wise Fine-Tuning: Resisting Incorrect Pseudo-Labels in Multi-Label Image
    Classification with Partial Labels, 2024 (arXiv:2401.16991).
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base.choices import WHOLE_BATCH
from partlabel.base.errors import InputError
from partlabel.base.ranges import Rate, Size
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning.extensions import FollowsStages
from partlabel.learning.losses.cellwise import cost_of_present, precise
from partlabel.learning.method import Figure, OnLogits, Predict, Stage, Task, weights_by_images
from partlabel.learning.methods.assume_negative import AssumeNegative, LabelSmoothing
from partlabel.learning.methods.em import EntropyMaximization
from partlabel.learning.snapshot import Snapshot
from partlabel.models import Classifier

Base = Literal["an", "ls", "em"]
BASES: dict[Base, Callable[[], OnLogits]] = {
    "an": AssumeNegative,
    "ls": LabelSmoothing,
    "em": partial(EntropyMaximization, "auto"),
}


class CategoryFineTuning(FollowsStages, OnLogits):
    """Trains by another method, then each class apart on its known labels (CFT) [1].

    Methods that give unknown labels a meaning learn from wrong ones. A second stage corrects this.
    For each class that has labels of both signs, it solves the logistic regression on the known
    labels with a pull towards the weights of the first stage, and makes the pull weaker epoch by
    epoch. Each class keeps the epoch with the best average precision on the validation labels, or
    its first weights if no epoch is better. The backbone is frozen, and the classes of the head
    must share no weights.

    The authors take small steps from the first weights, by gradients or by a genetic algorithm, and
    stop early. A pull has the same effect, and each problem has one exact solution.

    Args:
        base: the method of the first stage, with its default settings: ``an``, ``ls``, or ``em``
            with alpha=auto. Paper: an, and others.
        strongest, weakest: the pull in the first and in the last epoch of the second stage.
        steps: epochs of the second stage, in addition to --epochs.
    """

    first: Tensor
    pull: Tensor
    defaults: ClassVar[dict[str, Any]] = {"frozen": "all"}

    def __init__(
        self,
        base: Base = "an",
        strongest: Rate = 10.0,
        weakest: Rate = 1e-4,
        steps: Size = 11,
    ) -> None:
        super().__init__()
        if weakest > strongest:
            raise InputError(f"weakest = {weakest} must be at most strongest = {strongest}")
        self.base = BASES[base]()
        self.pulls = np.geomspace(strongest, weakest, steps).tolist()
        self.anchor, self.stage = Snapshot(), 0
        self.register_buffer("first", torch.tensor(-1))  # epoch of the second stage, -1 before it
        self.register_buffer("pull", torch.zeros((), dtype=torch.float64))

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """The base method, then one epoch per pull, each solved with L-BFGS."""
        tuning = Stage(len(self.pulls), lr=1.0, optimizer=WHOLE_BATCH, by_class=True)
        return [Stage(epochs, patience=patience), tuning]

    def prepare(self, task: Task) -> None:
        """Count the known labels of each class."""
        if not has_both_signs(task.validation).any():
            raise InputError(
                "cft chooses for each class on validation labels, and no class has present and "
                "absent ones; label some images for all classes, in a split 'holdout'"
            )
        self.base.prepare(task)
        counts = task.labels.counts()
        known = np.maximum(counts.present + counts.absent, 1)
        # what a known label of each class weighs: nothing in classes that cannot be tuned
        self.weights = torch.from_numpy(has_both_signs(task.labels) * len(task.labels) / known)

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Keep the weights of the first stage when the second one begins."""
        self.stage = stage
        if stage:
            self.anchor.take(model)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """In the second stage, set the pull of this epoch."""
        if not self.stage:
            return self.base.before_epoch(epoch, predict)
        if self.first < 0:
            self.first.fill_(epoch)
        self.pull.fill_(self.pulls[epoch - int(self.first)])
        return {"pull": float(self.pull)}

    def figures(self) -> dict[str, Figure]:
        """Those of the base, the pull, and what it costs."""
        return self.base.figures() | {"pull": Figure.SETTING, "moved": Figure.COST}

    def is_settled(self, epoch: int) -> bool:
        """In the first stage as the base; in the second one each epoch has another pull."""
        return not self.stage and self.base.is_settled(epoch)

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """In the second stage by images."""
        return weights_by_images(batch) if self.stage else self.base.part_weights(batch)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """That of the base, then :func:`known_cost`."""
        if not self.stage:
            return self.base.cost(logits, batch)
        return known_cost(logits, batch.labels, self.weights)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """In the second stage also the pull: half the squared distance to the first weights."""
        parts = super().loss(model, batch)
        if not self.stage:
            return parts
        first = self.anchor.copies[0].head.parameters()
        moved = squared_distance(model.head.parameters(), first) / (2 * batch.labels.shape[1])
        loss = parts["loss"] + float(self.pull) * moved
        return parts | {"loss": loss, "moved": moved.detach()}


def known_cost(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy on known labels, the mean over images and classes.

    Args:
        logits: [B, C]
        labels: [B, C]
        weights: [C] of the known labels of each class. The number of training images, divided by
            the number of those with a known label of the class, gives each class the same weight.
    """
    cost = torch.where(labels != 0, cost_of_present(labels * precise(logits)), 0)
    return (cost * weights.to(cost)).mean()


def squared_distance(weights: Iterable[Tensor], others: Iterable[Tensor]) -> Tensor:
    """The sum of squared differences."""
    pairs = zip(weights, others, strict=True)
    return torch.stack([(weight - other).square().sum() for weight, other in pairs]).sum()


def has_both_signs(table: LabelTable) -> NDArray[np.bool_]:
    """[C] the classes with present and absent labels."""
    counts = table.counts()
    return np.asarray((counts.present > 0) & (counts.absent > 0))
