"""Curriculum labelling: pseudo-labels for easy unknown cells.

[1] Durand et al., Learning a Deep ConvNet for Multi-label Classification with Partial Labels,
    CVPR 2019, Sec. 3.3.
[2] Kendall and Gal, What Uncertainties Do We Need in Bayesian Deep Learning for Computer Vision?,
    NIPS 2017.
"""

import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.base.errors import InputError, JobError, PartlabelWarning, count
from partlabel.images.batches import Batch
from partlabel.learning.method import PSEUDO_LABELS, Predict, Task
from partlabel.learning.pseudo_labels.state import PseudoLabels
from partlabel.models import Classifier

Strategy = Literal["two-step", "a", "b", "c", "d", "e"]
Uncertainty = Literal["variance", "deviation"]
THETAS: dict[Strategy, float] = {"two-step": 0.0, "a": 2.0, "b": 0.8, "c": 5.0, "d": 2.0, "e": 0.3}

Signs = NDArray[np.int8]


class Curriculum(PseudoLabels):
    """Pseudo-labels for unknown cells that the model finds easy, given before some epochs [1].

    A method calls :meth:`prepare` and :meth:`before_epoch` from its own, and trains on
    :meth:`labels` instead of the labels of a batch. Known labels never change.

    Args:
        strategy: which unknown cells are easy. ``a``: those with an absolute score of at least
            theta; ``b``: the share theta of each batch with the largest absolute scores; ``c``:
            those with a score of at least theta, so that all labels are present; ``d``: as ``a``,
            by the mean score of an ensemble; ``e``: those with an uncertainty of at most theta
            under dropout; ``two-step``: all, once.
        theta: threshold of the strategy; None for that of the paper, see ``THETAS``.
        relabel_at: epochs, counted from 1, before which labels are given; None for one half and
            three quarters of all epochs. Paper: 10 and 15 of 20.
        redecide: decide all unknown cells again each time, instead of those without a label.
        passes: for ``e``, number of passes of the head.
        uncertainty: for ``e``, ``variance`` or ``deviation`` of the scores.
    """

    given: Tensor

    def __init__(
        self,
        strategy: Strategy,
        theta: float | None = None,
        relabel_at: list[int] | None = None,
        redecide: bool = False,
        passes: int = 50,
        uncertainty: Uncertainty = "variance",
    ) -> None:
        super().__init__(redecide=redecide)
        self.strategy = strategy
        self.theta = THETAS[strategy] if theta is None else theta
        self.relabel_at, self.passes, self.uncertainty = relabel_at, passes, uncertainty
        self.register_buffer("given", torch.zeros((), dtype=torch.int64))
        if strategy == "b" and not 0 <= self.theta <= 1:
            raise InputError(f"theta = {theta}: for curriculum=b, theta is a share from 0 to 1")
        if strategy == "two-step" and theta is not None:
            raise InputError("theta has no effect: curriculum=two-step labels all unknown cells")
        if relabel_at is not None and (not relabel_at or min(relabel_at) < 2):
            raise InputError(
                f"relabel_at = {relabel_at}: epochs are counted from 1, and labels can first be "
                "given before epoch 2"
            )
        if strategy == "two-step" and len(relabel_at or [2]) > 1:
            raise InputError(f"relabel_at = {relabel_at}: curriculum=two-step gives labels once")

    def prepare(self, task: Task) -> None:
        """Decide before which epochs labels are given."""
        super().prepare(task)
        epochs = self.relabel_at
        if epochs is None:
            epochs = [max(2, round(task.epochs * share)) for share in (0.5, 0.75)]
            epochs = epochs[:1] if self.strategy == "two-step" else epochs
        self.epochs = sorted(set(epochs))
        too_late = [str(epoch) for epoch in self.epochs if epoch > task.epochs]
        if too_late:
            raise InputError(
                f"there are {count(task.epochs, 'epoch')}, but labels should be given before epoch "
                f"{' and '.join(too_late)}; set more --epochs, or another --set relabel_at"
            )

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Give labels, if there is a round before this epoch.

        Returns:
            The number of new labels, and the share of cells with a known or a pseudo-label.
        """
        if epoch + 1 not in self.epochs:
            return {}
        number = self.epochs.index(epoch + 1) + 1
        this_round, new_labels = self.begin_round(number), 0
        for rows, scores in self._scores(predict):
            if np.isnan(scores).any():
                raise JobError("scores of training images became NaN; a smaller --lr usually helps")
            new_labels += this_round.mark(rows, self._decide(scores, this_round.open_cells(rows)))
        this_round.end()
        self.end_round(number)
        self.given.fill_(new_labels if self.redecide else int(self.given) + new_labels)
        if number == len(self.epochs) and not int(self.given) and self.task.labels.known < 1:
            warnings.warn(
                f"the curriculum gave no label: no unknown cell was easy at theta = {self.theta:g}."
                " Set another theta",
                PartlabelWarning,
                stacklevel=2,
            )
        cells = max(self.task.labels.shape[0] * self.task.labels.shape[1], 1)
        share = self.task.labels.known + int(self.given) / cells
        return {PSEUDO_LABELS: float(new_labels), "label_share": share}

    def labels(self, batch: Batch) -> Tensor:
        """[B, C] the known labels of a batch, and pseudo-labels where they are unknown."""
        if int(self.round) == 0:
            return batch.labels
        signs, _ = self.read(batch.rows)
        return torch.where(batch.labels == 0, signs.to(batch.labels.dtype), batch.labels)

    def _scores(self, predict: Predict) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Rows, and scores [B, C], or for strategy e their mean and uncertainty [2, B, C]."""
        for rows, scores in predict(self._with_dropout if self.strategy == "e" else None):
            yield rows, scores.cpu().numpy()

    def _decide(self, scores: NDArray[Any], unknown: NDArray[np.bool_]) -> Signs:
        if self.strategy == "b":
            return largest_share(scores, unknown, self.theta)
        if self.strategy == "c":
            return present_only(scores, self.theta)
        if self.strategy == "e":
            return certain(scores[0], scores[1], self.theta)
        return large(scores, self.theta)

    def _with_dropout(self, model: Classifier, inputs: Tensor) -> Tensor:
        """Mean and uncertainty [2, B, C] of the logits under dropout [2].

        The backbone runs once, the head several times.
        """
        features = model.backbone(inputs)
        dropouts = [module for module in model.head.modules() if isinstance(module, nn.Dropout)]
        for module in dropouts:
            module.train()
        logits = torch.stack([model.head(features) for _ in range(self.passes)]).float()
        for module in dropouts:
            module.eval()
        uncertainty = logits.var(dim=0, correction=0)
        if self.uncertainty == "deviation":
            uncertainty = uncertainty.sqrt()
        return torch.stack([logits.mean(dim=0), uncertainty])


class SharedCurriculum:
    """The labels of another ensemble member's curriculum, for reading only."""

    def __init__(self, owner: Curriculum) -> None:
        self.owner = owner

    def prepare(self, task: Task) -> None:
        """Do nothing: the owner is prepared by its own method."""

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Do nothing: the owner gives the labels."""
        return {}

    def labels(self, batch: Batch) -> Tensor:
        """See :meth:`Curriculum.labels`."""
        return self.owner.labels(batch)


def large(scores: NDArray[Any], theta: float) -> Signs:
    """Strategies a and d: the sign of scores [B, C] with |score| >= theta, else 0 (Eq. 8, 10).

    >>> large(np.array([[2.5, -2.0, 1.0]]), 2.0)
    array([[ 1, -1,  0]], dtype=int8)
    """
    return np.where(np.abs(scores) >= theta, _sign(scores), 0).astype(np.int8)


def largest_share(scores: NDArray[Any], unknown: NDArray[np.bool_], theta: float) -> Signs:
    """Strategy b: the sign of the share theta of unknown cells with the largest |score|, else 0.

    >>> largest_share(np.array([[2.0, -3.0, 1.0]]), np.array([[True, True, True]]), 2 / 3)
    array([[ 1, -1,  0]], dtype=int8)
    """
    magnitude = np.where(unknown, np.abs(scores), -1.0).ravel()
    number = round(theta * int(np.count_nonzero(unknown)))
    chosen = np.zeros(magnitude.shape, dtype=np.bool_)
    chosen[np.argsort(-magnitude, kind="stable")[:number]] = True
    return np.where(chosen.reshape(scores.shape), _sign(scores), 0).astype(np.int8)


def present_only(scores: NDArray[Any], theta: float) -> Signs:
    """Strategy c: present where the score is at least theta, else 0 (Eq. 9)."""
    return (scores >= theta).astype(np.int8)


def certain(mean: NDArray[Any], uncertainty: NDArray[Any], theta: float) -> Signs:
    """Strategy e: the sign of the mean where the uncertainty is at most theta, else 0 (Eq. 11)."""
    return np.where(uncertainty <= theta, _sign(mean), 0).astype(np.int8)


def _sign(scores: NDArray[Any]) -> Signs:
    return np.where(scores >= 0, 1, -1).astype(np.int8)
