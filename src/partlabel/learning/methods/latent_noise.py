"""Labels that nobody mentioned.

[1] Misra et al., Seeing through the Human Reporting Bias: Visual Classifiers from Noisy
    Human-Centric Labels, CVPR 2016.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.method import Method, Task
from partlabel.learning.methods.bce import warn_of_positives_only
from partlabel.models import Classifier
from partlabel.models.heads import Relevance
from partlabel.models.heads.relevance import Shown


class LatentNoise(Method):
    """A label is given if it is to be seen and relevant: both are learned (latent noise) [1].

    The product of presence and relevance, both given the picture, is the chance of a label.

    Args:
        scores: of ``visual`` presence, or of ``relevance``: of being given.
        unknown: ``unmentioned``: an unknown label is one that was not given, and one known to be
            absent is not to be seen; ``ignored``: only known labels count; ``auto`` ignores them
            if some labels are known to be absent.
    """

    in_one_batch = True

    def __init__(
        self,
        scores: Shown = "visual",
        unknown: Literal["auto", "unmentioned", "ignored"] = "auto",
    ) -> None:
        super().__init__()
        self.scores, self.unknown = scores, unknown

    def head(self, features: int, classes: int) -> nn.Module:
        """Presence and relevance."""
        return Relevance(features, classes, self.scores)

    def prepare(self, task: Task) -> None:
        """Decide what an unknown label is."""
        absent = bool(task.labels.counts().absent.any())
        if self.unknown == "ignored":
            warn_of_positives_only(task.labels, "latent-noise")
        self.ignores = self.unknown == "ignored" or (self.unknown == "auto" and absent)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of being given, and where nothing is ignored of being there if absent."""
        assert isinstance(model.head, Relevance)
        visual, given = model.head.both(model.backbone(batch.views["weak"]))
        if self.ignores:
            loss = losses.bce(given, batch.labels, "batch")
        else:
            loss = losses.assume_negative(
                torch.where(batch.labels < 0, visual, given), batch.labels
            )
        positives = losses.known_positives(visual.detach(), batch.labels)
        return {"loss": loss, "positives": positives}
