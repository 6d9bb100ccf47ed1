"""Unknown labels with a large loss: rejected, or corrected for a moment or for good.

[1] Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022.
"""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.extensions import Artifacts, HasArtifacts
from partlabel.learning.method import (
    PSEUDO_LABELS,
    Figure,
    OnLogits,
    Predict,
    Task,
    weights_by_images,
)
from partlabel.learning.pseudo_labels.state import PseudoLabels

Percent = Annotated[float, Field(ge=0, le=100)]


class LargeLossRejection(OnLogits):
    """Counts unknown labels as absent, but ignores those with the largest loss (LL-R) [1].

    Without such labels in the first epoch, their share grows by delta in each further one. It is a
    share of all labels of a batch.

    Args:
        delta: in percent. Paper: from 0.1 to 0.5, chosen on validation, for 10 epochs.
    """

    correct = False
    share: Tensor

    def __init__(self, delta: Percent = 0.2) -> None:
        super().__init__()
        self.delta = delta
        self.register_buffer("share", torch.zeros((), dtype=torch.float64))

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Set the share of labels with a large loss."""
        self.share.fill_(min(epoch * self.delta / 100, 1.0))
        return {"large": float(self.share)}

    def figures(self) -> dict[str, Figure]:
        """Also the share of labels with a large loss."""
        return super().figures() | {"large": Figure.SHARE}

    def is_settled(self, epoch: int) -> bool:
        """Never, because the share grows, and which labels it has depends on the scores."""
        return self.delta == 0

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """None, because labels are compared with those of all images."""
        return None if self.delta else weights_by_images(batch)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.large_loss`."""
        return losses.large_loss(logits, batch.labels, float(self.share), correct=self.correct)


class LargeLossCorrection(LargeLossRejection):
    """As ll-r, but labels with the largest loss count as present in that batch (LL-Ct) [1].

    Args:
        delta: in percent. Paper: from 0.1 to 0.5, chosen on validation, for 10 epochs.
    """

    correct = True


class PermanentCorrection(OnLogits, HasArtifacts):
    """Counts unknown labels as absent; those with the largest loss become present (LL-Cp) [1].

    Before each epoch but the first, a share delta of all labels becomes present for good: the
    unknown labels with the highest scores in each part of the training images that is scored at a
    time. In the paper, labels are changed while batches are trained on.

    Args:
        delta: in percent. Paper: from 0.1 to 0.5, chosen on validation, for 10 epochs.
    """

    def __init__(self, delta: Percent = 0.2) -> None:
        super().__init__()
        self.delta = delta
        self.pseudo = PseudoLabels()

    def prepare(self, task: Task) -> None:
        """Set up the labels that are given."""
        self.pseudo.prepare(task)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Give labels to the likeliest unknown ones."""
        if epoch == 0 or not self.delta:
            return {}
        this_round, new_labels = self.pseudo.begin_round(epoch), 0
        for rows, logits in predict():
            is_open = torch.from_numpy(this_round.open_cells(rows))
            scores = torch.where(is_open, logits.detach().float().cpu(), -torch.inf)
            number = min(math.ceil(scores.numel() * self.delta / 100), int(is_open.sum()))
            signs = losses.likeliest(scores, torch.where(is_open, 0, 1), number)
            new_labels += this_round.mark(rows, signs.to(torch.int8).numpy())
        this_round.end()
        self.pseudo.end_round(epoch)
        return {PSEUDO_LABELS: float(new_labels)}

    def figures(self) -> dict[str, Figure]:
        """Also the number of labels that became present before an epoch."""
        return super().figures() | {PSEUDO_LABELS: Figure.COUNT}

    def is_settled(self, epoch: int) -> bool:
        """Never, because each epoch gives more labels."""
        return self.delta == 0

    def artifacts(self) -> Artifacts:
        """The labels that were given."""
        return Artifacts(pseudo_labels=self.pseudo)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.assume_negative`, on labels with those that were given."""
        labels = batch.labels
        if int(self.pseudo.round):
            signs, _ = self.pseudo.read(batch.rows)
            labels = torch.where(labels == 0, signs.to(labels.dtype), labels)
        return losses.assume_negative(logits, labels)
