"""Expected negatives with spatial consistency.

[1] Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label
    Annotations, WACV 2023. Its targets are averages over epochs for each picture; here, as in later
    comparisons, they come from a running mean of the model.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from partlabel.base.ranges import Rate, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.methods.role import ExpectedPositive
from partlabel.models import Classifier
from partlabel.models.heads import Linear


class SpatialConsistency(ExpectedPositive):
    """Only the least likely unknown labels count as absent; class maps follow a slower model's [1].

    Args:
        expected: see ``epr``.
        weight: of the distance between class maps.
        momentum: how slowly the other model follows.
    """

    in_one_batch = False  # a teacher follows from step to step

    def __init__(
        self,
        expected: Rate | None = None,
        weight: Weight = 1.0,
        momentum: Annotated[float, Field(gt=0, lt=1)] = 0.999,
    ) -> None:
        super().__init__(expected)
        self.weight, self.ema = weight, momentum

    def head(self, features: int, classes: int) -> nn.Module:
        """The usual one, asked for its class maps."""
        return Linear(features, classes, needs_maps=True)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """See :func:`losses.spatial_consistency`."""
        assert isinstance(batch.teacher, Classifier)
        seen = batch.views["weak"]
        maps = _class_maps(model, seen)
        with torch.no_grad():
            theirs = _class_maps(batch.teacher, seen)
        logits = maps.mean(dim=(2, 3))
        loss = losses.spatial_consistency(
            logits,
            batch.labels,
            self.weight,
            maps=maps,
            teacher_maps=theirs,
            expected=self.positives,
        )
        return {"loss": loss, "positives": losses.known_positives(logits, batch.labels).detach()}


def _class_maps(model: Classifier, seen: Tensor) -> Tensor:
    assert isinstance(model.head, Linear)
    return model.head.class_maps(model.backbone(seen))
