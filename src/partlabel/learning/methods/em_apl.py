"""Entropy maximisation with asymmetric pseudo-labels.

[1] Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels,
    ECCV 2022.
"""

import torch
from torch import Tensor

from partlabel.base.errors import InputError
from partlabel.base.ranges import Epochs, Share, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.extensions import Artifacts, HasArtifacts
from partlabel.learning.method import PSEUDO_LABELS, Figure, Predict, Task
from partlabel.learning.methods.em import Alpha, EntropyMaximization
from partlabel.learning.pseudo_labels import quota
from partlabel.learning.pseudo_labels.state import PseudoLabels


class EmApl(EntropyMaximization, HasArtifacts):
    """As em; after a warm-up, the least likely unknown labels become soft negatives (EM + APL) [1].

    Before each epoch after the warm-up, some unknown labels of each class, those with the lowest
    scores, become soft negatives. The target of a soft negative is its score at that time, and does
    not change later. All other unknown labels stay unknown. The rounds are planned for all
    --epochs; those that early stopping (--patience) does not reach are not made up for.

    Args:
        alpha: weight of the entropy of labels that stay unknown, a number or ``auto``: see ``em``.
        beta: weight of pseudo-labels. Paper: 0.02 for VOC, 0.9 COCO, 0.2 NUS-WIDE, 0.4 CUB; 1 is
            the ablation without a lower weight.
        theta: share of each class's unknown labels that have a pseudo-label at the end. Paper: 0.9;
            0.1 is an ablation.
        warmup: epochs of EM alone, fewer than --epochs. Paper: 5 of 10 (NUS-WIDE 4, CUB 3).
        hard: use targets 0 and 1 instead of scores, an ablation.
        theta_positive: share of each class's unknown labels, those with the highest scores, that
            become soft positives, an ablation. Paper: 0.1, with worse results.
    """

    def __init__(
        self,
        alpha: Alpha = 0.2,
        beta: Weight = 0.02,
        theta: Share = 0.9,
        warmup: Epochs = 5,
        hard: bool = False,
        theta_positive: Share = 0.0,
    ) -> None:
        super().__init__(alpha)
        if theta + theta_positive > 1:
            raise InputError(
                f"theta = {theta} and theta_positive = {theta_positive}: their sum must be at "
                "most 1"
            )
        self.beta, self.theta, self.theta_positive = beta, theta, theta_positive
        self.warmup, self.hard = warmup, hard
        self.pseudo = PseudoLabels()

    def prepare(self, task: Task) -> None:
        """Count the unknown labels of each class."""
        super().prepare(task)
        if task.epochs <= self.warmup:
            raise InputError(
                f"a warm-up of {self.warmup} of {task.epochs} epochs leaves no epoch for "
                "pseudo-labels; set more --epochs, or a smaller --set warmup"
            )
        self.rounds = task.epochs - self.warmup
        self.unknown = task.labels.counts().unknown
        self.pseudo.prepare(task)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """After the warm-up, give pseudo-labels to the least likely unknown labels."""
        figures = super().before_epoch(epoch, predict)
        if epoch < self.warmup:
            return figures
        number = epoch - self.warmup + 1
        this_round = self.pseudo.begin_round(number)
        for rows, logits in predict():
            this_round.score(rows, torch.sigmoid(logits).cpu().numpy())
        new_labels = this_round.give(
            quota(self.unknown, self.theta, number, self.rounds),
            quota(self.unknown, self.theta_positive, number, self.rounds),
            (0.0, 1.0) if self.hard else None,
        )
        self.pseudo.end_round(number)
        return figures | {PSEUDO_LABELS: float(new_labels)}

    def figures(self) -> dict[str, Figure]:
        """Also the number of pseudo-labels given before an epoch."""
        return super().figures() | {PSEUDO_LABELS: Figure.COUNT}

    def is_settled(self, epoch: int) -> bool:
        """From the last round of pseudo-labels on."""
        return epoch >= self.warmup + self.rounds - 1

    def artifacts(self) -> Artifacts:
        """The pseudo-labels."""
        return Artifacts(pseudo_labels=self.pseudo)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """EM on cells without a pseudo-label, soft cross-entropy on those with one (Eq. 8)."""
        if int(self.pseudo.round) == 0:
            return super().cost(logits, batch)
        signs, targets = self.pseudo.read(batch.rows)
        has_pseudo = signs != 0
        em = losses.entropy_maximization(logits, batch.labels, self.weight * ~has_pseudo)
        return em + losses.soft_negative(logits, -has_pseudo.int(), self.beta, targets=targets)
