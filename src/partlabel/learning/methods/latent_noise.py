"""Learning from labels that annotators did not always mention.

[1] Misra et al., Seeing through the Human Reporting Bias: Visual Classifiers from Noisy
    Human-Centric Labels, CVPR 2016.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.checks import warn_of_positives_only
from partlabel.learning.method import Method, Task, weights_by_images, weights_by_labels
from partlabel.models import Classifier
from partlabel.models.heads import Relevance
from partlabel.models.heads.relevance import Meaning


class LatentNoise(Method):
    """Models an unknown label as one that was not mentioned, or ignores it (latent noise) [1].

    The model predicts for each class whether it is visible in an image, and whether an annotator
    would mention it if it is. The product of both is the probability that the label is known to be
    present.

    Args:
        scores: which probability is the score of a class: ``visual`` that it is visible,
            ``relevance`` that it is mentioned.
        unknown: how unknown labels are used. ``unmentioned``: an unknown label was not mentioned,
            and a label known to be absent is not visible; ``ignored``: only known labels are used;
            ``auto``: ``ignored`` if some training labels are known to be absent, else
            ``unmentioned``.
    """

    in_one_batch = True

    def __init__(
        self,
        scores: Meaning = "visual",
        unknown: Literal["auto", "unmentioned", "ignored"] = "auto",
    ) -> None:
        super().__init__()
        self.scores, self.unknown = scores, unknown

    def head(self, features: int, classes: int) -> nn.Module:
        """A head that predicts presence and relevance."""
        return Relevance(features, classes, self.scores)

    def prepare(self, task: Task) -> None:
        """Decide how unknown labels are used."""
        absent = bool(task.labels.counts().absent.any())
        if self.unknown == "ignored":
            warn_of_positives_only(task.labels, "latent-noise")
        self.ignores = self.unknown == "ignored" or (self.unknown == "auto" and absent)

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """By known labels if unknown ones are ignored, otherwise by images."""
        return (weights_by_labels if self.ignores else weights_by_images)(batch)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of being mentioned; for labels known to be absent, of being visible.

        If unknown labels are ignored, all known labels have the first of the two costs.
        """
        assert isinstance(model.head, Relevance)
        visual, mentioned = model.head.both(model.backbone(batch.views["weak"]))
        if self.ignores:
            loss = losses.bce(mentioned, batch.labels, "batch")
        else:
            logits = torch.where(batch.labels < 0, visual, mentioned)
            loss = losses.assume_negative(logits, batch.labels)
        positives = losses.known_positives(visual.detach(), batch.labels)
        return {"loss": loss, "positives": positives}
