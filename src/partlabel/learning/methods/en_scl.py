"""Expected negatives with spatial consistency.

[1] Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label
    Annotations, WACV 2023. In the paper, the target maps of an image are averages over epochs.
    Here, as in later comparisons, they come from a teacher, a running mean of the model.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from partlabel.base.ranges import Rate, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.extensions import HasTeacher
from partlabel.learning.methods.role import ExpectedPositive
from partlabel.models import Classifier
from partlabel.models.heads import Linear


class SpatialConsistency(ExpectedPositive, HasTeacher):
    """Counts the least likely unknown labels as absent; class maps follow a teacher (EN + SCL) [1].

    The most likely unknown labels of a batch are ignored, as many as are expected to be present.
    The teacher is a running mean of the model.

    Args:
        expected: see ``epr``.
        weight: weight of the squared difference between the class maps of model and teacher.
        momentum: decay of the running mean; a larger value makes the teacher change more slowly.
    """

    in_one_batch = False  # the teacher changes in every step

    def __init__(
        self,
        expected: Rate | None = None,
        weight: Weight = 1.0,
        momentum: Annotated[float, Field(gt=0, lt=1)] = 0.999,
    ) -> None:
        super().__init__(expected)
        self.weight, self.ema = weight, momentum

    def head(self, features: int, classes: int) -> nn.Module:
        """The linear head, with class maps."""
        return Linear(features, classes, needs_maps=True)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """See :func:`losses.spatial_consistency`."""
        assert isinstance(batch.teacher, Classifier)
        inputs = batch.views["weak"]
        maps = _class_maps(model, inputs)
        with torch.no_grad():
            teacher_maps = _class_maps(batch.teacher, inputs)
        logits = maps.mean(dim=(2, 3))
        loss = losses.spatial_consistency(
            logits,
            batch.labels,
            self.weight,
            maps=maps,
            teacher_maps=teacher_maps,
            expected=self.positives,
        )
        return {"loss": loss, "positives": losses.known_positives(logits, batch.labels).detach()}


def _class_maps(model: Classifier, inputs: Tensor) -> Tensor:
    assert isinstance(model.head, Linear)
    return model.head.class_maps(model.backbone(inputs))
