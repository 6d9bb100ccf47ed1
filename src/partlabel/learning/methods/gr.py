"""Generalised robust loss.

[1] Chen et al., Boosting Single Positive Multi-label Classification with Generalized Robust Loss,
    IJCAI 2024.
"""

import torch
from torch import Tensor

from partlabel.base.ranges import Finite, Rate, Share
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.method import Figure, OnLogits, Predict, Task


class GeneralizedRobust(OnLogits):
    """Counts an unknown label as present with a share that grows with its probability (GR) [1].

    An unknown label with probability p is present with the share sigmoid(w p + b), and absent with
    the rest. Both costs are bounded, and multiplied by exp(-(p - mu)^2 / (2 sigma^2)). w, b, mu and
    sigma go from their first to their last values, by the same step in each epoch. The values of
    the authors' code are for VOC, with 8 epochs.

    Args:
        w, w_end: first and last slope. Authors: 0, 2.
        b, b_end: first and last offset. Authors: -2, -2.
        mu, mu_end: first and last centre of the weight. Authors: 0.5, 0.8.
        sigma, sigma_end: first and last width of the weight. Authors: 2, 0.5.
        q2: how far the cost of a present label is bounded, by 1 / q2. Authors: 0.01.
        q3: the same for an absent label. Authors: 1.
    """

    values: Tensor

    in_one_batch = False  # the weights are part of the cost but get no gradient

    def __init__(
        self,
        w: Finite = 0.0,
        w_end: Finite = 2.0,
        b: Finite = -2.0,
        b_end: Finite = -2.0,
        mu: Finite = 0.5,
        mu_end: Finite = 0.8,
        sigma: Rate = 2.0,
        sigma_end: Rate = 0.5,
        q2: Share = 0.01,
        q3: Share = 1.0,
    ) -> None:
        super().__init__()
        self.first = torch.tensor([w, b, mu, sigma])
        self.last = torch.tensor([w_end, b_end, mu_end, sigma_end])
        self.q2, self.q3 = q2, q3
        self.register_buffer("values", self.first.clone())

    def prepare(self, task: Task) -> None:
        """Plan the steps of the values."""
        self.epochs = task.epochs

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Set the values of this epoch."""
        done = min(epoch / max(self.epochs - 1, 1), 1.0)
        self.values.copy_(self.first + done * (self.last - self.first))
        return dict(zip(("w", "b", "mu", "sigma"), self.values.tolist(), strict=True))

    def figures(self) -> dict[str, Figure]:
        """Also the values of an epoch."""
        return super().figures() | dict.fromkeys(("w", "b", "mu", "sigma"), Figure.SETTING)

    def is_settled(self, epoch: int) -> bool:
        """From the last epoch on."""
        return epoch >= self.epochs - 1

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.generalized_robust`."""
        w, b, mu, sigma = self.values.tolist()
        return losses.generalized_robust(logits, batch.labels, w, b, mu, sigma, self.q2, self.q3)
