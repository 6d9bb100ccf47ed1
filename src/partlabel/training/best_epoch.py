"""The weights that a training keeps: of its best epoch, or of the best epoch of each class."""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.learning.methods import Stage
from partlabel.models import Classifier
from partlabel.models.heads import HEADS, HasClassRows
from partlabel.training.progress import Progress
from partlabel.training.settings import Keep


class BestEpoch:
    """The weights that a training keeps. The scores they had are in its progress.

    Args:
        keep: which epoch to keep, see the settings.
        score_classes: a model to the average precision of each class [C] on validation labels, -1
            for a class that has none.
    """

    def __init__(
        self, keep: Keep, score_classes: Callable[[Classifier], NDArray[np.float64]]
    ) -> None:
        self.keep, self.score_classes = keep, score_classes
        self.weights: dict[str, Tensor] = {}

    def offer(self, model: Classifier, score: float, stage: Stage, progress: Progress) -> None:
        """Keep the weights after an epoch, if they are better than those kept so far.

        Args:
            model: the model after the epoch.
            score: its validation mAP; NaN if there is nothing to validate on.
            stage: the stage of the epoch.
            progress: its best scores and their epoch are updated.
        """
        if self.keep != "last" and stage.by_class:
            self._offer_classes(model, progress)
        elif score > progress.best or math.isnan(score) or self.keep == "last":
            progress.best, progress.best_epoch = score, progress.epoch
            self.weights = model.trained_weights()

    def _offer_classes(self, model: Classifier, progress: Progress) -> None:
        """Each class keeps the weights of this epoch if it is the class's best one."""
        scores = self.score_classes(model)
        better = scores > np.asarray(progress.class_best)
        if better.any():
            self.weights = take_rows(self.weights, model.trained_weights(), better)
            progress.class_best = np.where(better, scores, progress.class_best).tolist()
            progress.best = float(np.mean([best for best in progress.class_best if best >= 0]))
            progress.best_epoch = progress.epoch

    def begin_stage(
        self, stage: Stage, before: Stage, model: Classifier, progress: Progress
    ) -> None:
        """Decide what the epochs of a stage are compared with.

        Args:
            stage, before: the stage, and the one before it.
            model: it has the weights that the stage before kept.
            progress: its best scores are updated.
        """
        if stage.by_class:
            progress.class_best = self.score_classes(model).tolist()
        elif self.keep != "best-of-all" or before.aside:
            progress.best, progress.best_epoch = -math.inf, -1


def check_rows(head: nn.Module) -> None:
    """Raise an error for a head whose classes share weights."""
    if not isinstance(head, HasClassRows):
        able = ", ".join(name for name, kind in HEADS.items() if issubclass(kind, HasClassRows))
        raise InputError(
            "this method trains each class apart, which needs a head whose classes share no "
            f"weights: {able}, and no --teacher"
        )


def take_rows(
    best: dict[str, Tensor], now: dict[str, Tensor], better: NDArray[np.bool_]
) -> dict[str, Tensor]:
    """The weights ``best``, with those of some classes from ``now``.

    Args:
        best, now: the trained weights of a model whose head has one row per class.
        better: [C] the classes whose rows come from ``now``.
    """
    if not better.any():
        return best
    chosen = torch.from_numpy(better)

    def rows(name: str, before: Tensor) -> Tensor:
        if not name.startswith("head."):
            return before
        shape = (-1, *[1] * (before.ndim - 1))
        return torch.where(chosen.to(before.device).reshape(shape), now[name], before)

    return {name: rows(name, before) for name, before in best.items()}
