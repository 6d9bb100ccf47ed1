"""Labels that nobody mentioned.

[1] Misra et al., Seeing through the Human Reporting Bias: Visual Classifiers from Noisy
    Human-Centric Labels, CVPR 2016.
"""

import torch
from torch import Tensor, nn

from partlabel import losses
from partlabel.data import Batch
from partlabel.methods.base import Method
from partlabel.models import Classifier
from partlabel.models.heads import Relevance
from partlabel.models.heads.relevance import Shown


class LatentNoise(Method):
    """A label is known if it is to be seen and relevant: both are learned (latent noise) [1].

    A label known to be present was mentioned, an unknown one was not: the product of presence and
    relevance, both given the picture, tells these apart. One known to be absent is not to be seen.

    Args:
        scores: of ``visual`` presence, or of ``relevance``: of being mentioned.
    """

    def __init__(self, scores: Shown = "visual") -> None:
        super().__init__()
        self.scores = scores

    def head(self, features: int, classes: int) -> nn.Module:
        """Presence and relevance."""
        return Relevance(features, classes, self.scores)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of being mentioned, and of being there where it is known not to be."""
        assert isinstance(model.head, Relevance)
        visual, mentioned = model.head.both(model.backbone(batch.views["weak"]))
        logits = torch.where(batch.labels < 0, visual, mentioned)
        return {
            "loss": losses.assume_negative(logits, batch.labels),
            "positives": losses.known_positives(visual.detach(), batch.labels),
        }
