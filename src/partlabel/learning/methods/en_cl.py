"""Expected negatives with consistency of predictions over epochs.

[1] Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label
    Annotations, WACV 2023.
"""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from partlabel.base.ranges import Rate, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.checks import refuse_more_than_memory
from partlabel.learning.losses.cellwise import precise
from partlabel.learning.method import Task
from partlabel.learning.methods.role import ExpectedPositive


class PredictionConsistency(ExpectedPositive):
    """Counts the least likely unknown labels as absent; predictions stay close (EN + CL) [1].

    Each training label has a running mean of its predictions over the epochs. The most likely
    unknown labels of a batch by these means are ignored, as many as are expected to be present.
    Predictions are pulled to their means.

    Args:
        expected: see ``epr``.
        weight: weight of the squared difference between predictions and their means.
        momentum: decay of the means, by epoch; a larger value makes them change more slowly.
    """

    average: Tensor
    seen: Tensor

    in_one_batch = False  # the means change in every step

    def __init__(
        self,
        expected: Rate | None = None,
        weight: Weight = 1.0,
        momentum: Annotated[float, Field(ge=0, lt=1)] = 0.8,
    ) -> None:
        super().__init__(expected)
        self.weight, self.momentum = weight, momentum

    def prepare(self, task: Task) -> None:
        """Make room for the means."""
        super().prepare(task)
        # a number of four bytes, and again in a checkpoint
        refuse_more_than_memory("EN + CL for the running means", 8 * math.prod(task.labels.shape))
        self.register_buffer("average", torch.zeros(task.labels.shape))
        self.register_buffer("seen", torch.zeros(len(task.labels), dtype=torch.bool))

    def is_settled(self, epoch: int) -> bool:
        """Never, because the means depend on the predictions."""
        return False

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.prediction_consistency`; a first prediction is its own mean."""
        scores = torch.sigmoid(precise(logits.detach()))
        before = self.average[batch.rows].to(scores.dtype)
        average = torch.where(self.seen[batch.rows, None], before, scores)
        self.average[batch.rows] = torch.lerp(scores, average, self.momentum).to(self.average.dtype)
        self.seen[batch.rows] = True
        return losses.prediction_consistency(
            logits, batch.labels, self.weight, average=average, expected=self.positives
        )
