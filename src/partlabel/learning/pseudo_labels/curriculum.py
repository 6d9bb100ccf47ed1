"""Curriculum labelling: easy unknown labels first.

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
from partlabel.learning.method import Predict, Task
from partlabel.learning.pseudo_labels.state import PseudoLabels
from partlabel.models import Classifier

Strategy = Literal["two-step", "a", "b", "c", "d", "e"]
Uncertainty = Literal["variance", "deviation"]
THETAS: dict[Strategy, float] = {"two-step": 0.0, "a": 2.0, "b": 0.8, "c": 5.0, "d": 2.0, "e": 0.3}

Signs = NDArray[np.int8]


class Curriculum(PseudoLabels):
    """Weak labels for unknown cells that the model finds easy, given before some epochs [1].

    A method uses it by calling :meth:`prepare` and :meth:`before_epoch` from its own, and training
    on :meth:`labels` in place of a batch's. Labels that are known never change.

    Args:
        strategy: which unknown cells are easy. ``a``: scores of at least theta, either sign; ``b``:
            the share theta of each batch with the largest; ``c``: as ``a``, present labels only;
            ``d``: as ``a``, on the mean score of several models; ``e``: those whose score varies by
            at most theta when dropout is on; ``two-step``: all, once.
        theta: None for the paper's choice, see ``THETAS``.
        relabel_at: epochs, counted from 1, before which labels are given; None for a half and three
            quarters of the way. Paper: 10 and 15 of 20.
        redecide: decide all unknown cells anew each time, instead of those that have no label yet.
        passes: for ``e``, how often the head is asked.
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
            raise InputError(f"theta = {theta}: for curriculum=b it is a share, from 0 to 1")
        if strategy == "two-step" and theta is not None:
            raise InputError("theta: curriculum=two-step labels everything and takes none")
        if relabel_at is not None and (not relabel_at or min(relabel_at) < 2):
            raise InputError(
                f"relabel_at = {relabel_at}: epochs are counted from 1, and before the first "
                "nothing is learned yet"
            )
        if strategy == "two-step" and len(relabel_at or [2]) > 1:
            raise InputError(f"relabel_at = {relabel_at}: curriculum=two-step gives labels once")

    def prepare(self, task: Task) -> None:
        """Find out before which epochs labels are given."""
        super().prepare(task)
        wanted = self.relabel_at
        if wanted is None:
            wanted = [max(2, round(task.epochs * share)) for share in (0.5, 0.75)]
            wanted = wanted[:1] if self.strategy == "two-step" else wanted
        late = [str(epoch) for epoch in sorted(set(wanted)) if epoch > task.epochs]
        if late:
            raise InputError(
                f"{count(task.epochs, 'epoch')}, but labels are to be given before epoch "
                f"{' and '.join(late)}; take more --epochs, or another --set relabel_at"
            )
        self.epochs = sorted(set(wanted))

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Give labels if it is time; tells how many, and what share of labels there is now."""
        if epoch + 1 not in self.epochs:
            return {}
        number = self.epochs.index(epoch + 1) + 1
        this, given = self.begin_round(number), 0
        for rows, said in self._ask(predict):
            if np.isnan(said).any():
                raise JobError("scores of training images became NaN; a smaller --lr usually helps")
            given += this.mark(rows, self._decide(said, this.open_cells(rows)))
        this.end()
        self.end_round(number)
        self.given.fill_(given if self.redecide else int(self.given) + given)
        if number == len(self.epochs) and not int(self.given) and self.task.labels.known < 1:
            warnings.warn(
                f"the curriculum gave no label: nothing was easy at theta = {self.theta:g}",
                PartlabelWarning,
                stacklevel=2,
            )
        cells = max(self.task.labels.shape[0] * self.task.labels.shape[1], 1)
        share = self.task.labels.known + int(self.given) / cells
        return {"pseudo_labels": float(given), "label_share": share}

    def labels(self, batch: Batch) -> Tensor:
        """[B, C] the known labels, and where there are none the weak ones."""
        if int(self.round) == 0:
            return batch.labels
        signs, _ = self.read(batch.rows)
        return torch.where(batch.labels == 0, signs.to(batch.labels.dtype), batch.labels)

    def _ask(self, predict: Predict) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Rows, and scores [B, C], or for strategy e their mean and uncertainty [2, B, C]."""
        for rows, said in predict(self._with_dropout if self.strategy == "e" else None):
            yield rows, said.cpu().numpy()

    def _decide(self, said: NDArray[Any], unknown: NDArray[np.bool_]) -> Signs:
        if self.strategy == "b":
            return largest_share(said, unknown, self.theta)
        if self.strategy == "c":
            return present_only(said, self.theta)
        if self.strategy == "e":
            return certain(said[0], said[1], self.theta)
        return large(said, self.theta)

    def _with_dropout(self, model: Classifier, inputs: Tensor) -> Tensor:
        """Mean and uncertainty [2, B, C] of the logits; the backbone is asked once."""
        features = model.backbone(inputs)
        dropouts = [part for part in model.head.modules() if isinstance(part, nn.Dropout)]
        for part in dropouts:
            part.train()
        logits = torch.stack([model.head(features) for _ in range(self.passes)]).float()
        for part in dropouts:
            part.eval()
        spread = logits.var(dim=0, correction=0)
        if self.uncertainty == "deviation":
            spread = spread.sqrt()
        return torch.stack([logits.mean(dim=0), spread])


class Borrowed:
    """The labels of another member of an ensemble, to train on but not to decide."""

    def __init__(self, owner: Curriculum) -> None:
        self.owner = owner

    def prepare(self, task: Task) -> None:
        """Everything is ready."""

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """The owner gives labels."""
        return {}

    def labels(self, batch: Batch) -> Tensor:
        """See :meth:`Curriculum.labels`."""
        return self.owner.labels(batch)


def large(scores: NDArray[Any], theta: float) -> Signs:
    """Strategies a and d: the sign of scores [B, C] of at least theta, else 0 (Eq. 8, 10).

    >>> large(np.array([[2.5, -2.0, 1.0]]), 2.0)
    array([[ 1, -1,  0]], dtype=int8)
    """
    return np.where(np.abs(scores) >= theta, _sign(scores), 0).astype(np.int8)


def largest_share(scores: NDArray[Any], unknown: NDArray[np.bool_], theta: float) -> Signs:
    """Strategy b: the sign of the share theta of a batch's unknown cells with the largest scores.

    >>> largest_share(np.array([[2.0, -3.0, 1.0]]), np.array([[True, True, True]]), 2 / 3)
    array([[ 1, -1,  0]], dtype=int8)
    """
    size = np.where(unknown, np.abs(scores), -1.0).ravel()
    number = round(theta * int(np.count_nonzero(unknown)))
    chosen = np.zeros(size.shape, dtype=np.bool_)
    chosen[np.argsort(-size, kind="stable")[:number]] = True
    return np.where(chosen.reshape(scores.shape), _sign(scores), 0).astype(np.int8)


def present_only(scores: NDArray[Any], theta: float) -> Signs:
    """Strategy c: present where the score is at least theta, else 0 (Eq. 9)."""
    return (scores >= theta).astype(np.int8)


def certain(mean: NDArray[Any], uncertainty: NDArray[Any], theta: float) -> Signs:
    """Strategy e: the sign of the mean where the uncertainty is at most theta, else 0 (Eq. 11)."""
    return np.where(uncertainty <= theta, _sign(mean), 0).astype(np.int8)


def _sign(scores: NDArray[Any]) -> Signs:
    return np.where(scores >= 0, 1, -1).astype(np.int8)
