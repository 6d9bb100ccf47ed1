"""Unknown labels from the labels of an image and from prototypes, with learned thresholds.

[1] Chen et al., Heterogeneous Semantic Transfer for Multi-label Recognition with Partial Labels,
    IJCV 2024.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from partlabel.base.ranges import Epochs, Rate, Size, Weight
from partlabel.learning import losses
from partlabel.learning.class_features import present_features
from partlabel.learning.extensions import HasOwnRates
from partlabel.learning.method import Figure, Predict, Task
from partlabel.learning.methods.sst import SemanticTransfer


class HeterogeneousTransfer(SemanticTransfer, HasOwnRates):
    """Counts unknown labels as present that fit labels or prototypes; learns how well (HST) [1].

    As ``sst``, but feature vectors are compared with the prototypes of a class: centres of clusters
    of the vectors of images in which it is known to be present. Both thresholds are learned: they
    separate known present labels from known absent ones. Needs labels that are known to be absent.

    Args:
        width, vectors, channels, joint, steps, start, cooccurrence, contrast: see ``sst``.
        prototypes: number of prototypes per class. Authors' code: 10.
        every: epochs between two computations of prototypes. Authors' code: 5.
        prototype_contrast: weight of the contrastive loss with prototypes. Authors' code: 0.05.
        learn: weight of the loss of the thresholds. Authors' code: 0.1.
        temperature: a label with score s is present with probability sigmoid((s - threshold) /
            temperature).
    """

    name: ClassVar[str] = "hst"

    def __init__(
        self,
        width: Size = 50,
        vectors: str = "cooccurrence",
        channels: Size = 128,
        joint: Size = 128,
        steps: Size = 3,
        start: Epochs = 5,
        cooccurrence: Weight = 10.0,
        contrast: Weight = 0.05,
        prototypes: Size = 10,
        every: Size = 5,
        prototype_contrast: Weight = 0.05,
        learn: Weight = 0.1,
        temperature: Rate = 0.1,
    ) -> None:
        super().__init__(
            width, vectors, channels, joint, steps, start, cooccurrence, contrast, prototypes
        )
        self.every, self.prototype_contrast = every, prototype_contrast
        self.learn, self.temperature = learn, temperature
        self.thresholds = nn.Parameter(torch.ones(2))

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The thresholds, without weight decay."""
        return [{"params": [self.thresholds], "lr": lr, "weight_decay": 0.0}]

    def prepare(self, task: Task) -> None:
        """Keep the labels, to find feature vectors of present ones."""
        super().prepare(task)
        self.labels = task.labels

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Compute the prototypes, every few epochs."""
        figures = super().before_epoch(epoch, predict)
        if epoch < self.start:
            return figures
        if (epoch - self.start) % self.every == 0:
            self.stored.cluster(present_features(predict, self.labels))
        names = ("within_threshold", "across_threshold")
        return figures | dict(zip(names, self.thresholds.tolist(), strict=True))

    def figures(self) -> dict[str, Figure]:
        """Also the thresholds, and the costs of thresholds and prototypes."""
        settings = dict.fromkeys(("within_threshold", "across_threshold"), Figure.SETTING)
        costs = dict.fromkeys(("thresholds", "prototypes"), Figure.COST)
        return super().figures() | settings | costs

    def centres(self, features: Tensor, labels: Tensor) -> Tensor:
        """The centres of the prototypes."""
        return self.stored.centres()

    def further_cost(
        self, scores: tuple[Tensor, Tensor], labels: Tensor, parts: dict[str, Tensor]
    ) -> Tensor:
        """Cross-entropy of known labels by their distance to the threshold, and of prototypes."""
        can_be_scored = losses.other_present(labels) > 0, self.stored.number > 0
        thresholds = self.thresholds.to(scores[0].dtype)
        costs = [
            losses.batch_bce((score - threshold) / self.temperature, labels * scored)
            for score, threshold, scored in zip(scores, thresholds, can_be_scored, strict=True)
        ]
        parts["thresholds"] = torch.stack(costs).sum()
        parts["prototypes"] = losses.prototype_contrast(scores[1], labels * can_be_scored[1])
        return self.learn * parts["thresholds"] + self.prototype_contrast * parts["prototypes"]
