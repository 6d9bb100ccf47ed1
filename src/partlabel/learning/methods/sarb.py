"""Unknown labels that are borrowed from other images and from prototypes.

[1] Pu et al., Semantic-Aware Representation Blending for Multi-Label Image Recognition with Partial
    Labels, AAAI 2022.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.base.ranges import Epochs, Size, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.class_features import ClassFeatures, present_features
from partlabel.learning.class_knowledge import InformsHead
from partlabel.learning.extensions import HasOwnRates
from partlabel.learning.method import Figure, Predict, Task
from partlabel.models import Classifier
from partlabel.models.heads import Decoupled


class RepresentationBlending(InformsHead, HasOwnRates):
    """Blends features of unknown labels with those of images that have them (SARB) [1].

    The network is that of ``ssgrl``. A label that is unknown in one image of a batch and known to
    be present in another gets a blend of both feature vectors, and counts as present with the share
    of the other. Likewise one unknown label of each image is blended with a prototype of its class:
    a centre of the feature vectors of images in which it is known to be present. Both shares are
    learned. Needs labels that are known to be absent.

    Args:
        width, vectors, channels, joint, steps: see ``ssgrl``. The authors' code: 300, word vectors,
            1024, 512, 3.
        start: epochs before features are blended. Authors' code: 5 of 20.
        contrast: weight of the contrastive loss, see ``sst``. Authors' code: 0.05.
        prototypes: number of prototypes per class. Authors' code: 10.
        every: epochs between two computations of prototypes. Authors' code: 5.
    """

    name: ClassVar[str] = "sarb"
    blends: Tensor

    def __init__(
        self,
        width: Size = 50,
        vectors: str = "cooccurrence",
        channels: Size = 128,
        joint: Size = 128,
        steps: Size = 3,
        start: Epochs = 5,
        contrast: Weight = 0.05,
        prototypes: Size = 10,
        every: Size = 5,
    ) -> None:
        super().__init__(width, vectors)
        self.channels, self.joint, self.steps, self.start = channels, joint, steps, start
        self.contrast, self.prototypes, self.every = contrast, prototypes, every
        self.register_buffer("blends", torch.zeros((), dtype=torch.bool))
        # logits of the shares of own features, when blended with an image and with a prototype
        self.own = nn.Parameter(torch.zeros(2))

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The shares, without weight decay."""
        return [{"params": [self.own], "lr": lr, "weight_decay": 0.0}]

    def head(self, features: int, classes: int) -> nn.Module:
        """The head of ``ssgrl``."""
        return Decoupled(features, classes, self.width, self.channels, self.joint, self.steps)

    def prepare(self, task: Task) -> None:
        """Raise an error if no feature would ever be blended."""
        super().prepare(task)
        if self.start >= task.epochs:
            raise InputError(
                f"start = {self.start}: no feature would be blended within {task.epochs} epochs; "
                "set more --epochs, or a smaller --set start"
            )
        self.labels = task.labels
        self.stored = ClassFeatures(task.labels.shape[1], self.prototypes, self.channels)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Compute the prototypes, every few epochs."""
        self.blends.fill_(epoch >= self.start)
        if not self.blends:
            return {}
        if (epoch - self.start) % self.every == 0:
            self.stored.cluster(present_features(predict, self.labels))
        shares = torch.sigmoid(self.own.detach()).tolist()
        return dict(zip(("alpha", "beta"), shares, strict=True))

    def figures(self) -> dict[str, Figure]:
        """Costs, and the two shares."""
        names = ("known", "contrast", "blended_images", "blended_prototypes")
        costs = dict.fromkeys(names, Figure.COST)
        return super().figures() | costs | dict.fromkeys(("alpha", "beta"), Figure.SETTING)

    def is_settled(self, epoch: int) -> bool:
        """Never, because features are blended at random."""
        return False

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of known labels, and of known and blended ones in both ways."""
        head, labels = model.head, batch.labels
        assert isinstance(head, Decoupled)
        features = head.decouple(model.backbone(batch.views["weak"]))
        logits = head.classify(features)
        parts = {
            "known": losses.batch_bce(logits, labels),
            "contrast": losses.label_contrast(features, labels),
        }
        loss = parts["known"] + self.contrast * parts["contrast"]
        if self.blends:
            alpha, beta = torch.sigmoid(self.own)
            kinds = {
                "blended_images": losses.blend_images(features, labels, alpha),
                "blended_prototypes": self._blend_prototypes(features, labels, beta),
            }
            for name, blended in kinds.items():
                cost = losses.soft_bce(
                    head.classify(blended.features), blended.targets, blended.counted
                )
                parts[name], loss = cost, loss + cost
        parts["positives"] = losses.known_positives(logits, labels)
        return {"loss": loss} | {name: part.detach() for name, part in parts.items()}

    def _blend_prototypes(self, features: Tensor, labels: Tensor, beta: Tensor) -> losses.Blended:
        """Blend one unknown label of each image with a random prototype of its class."""
        number = self.stored.number
        chosen = losses.choose_unknown(labels, number > 0)
        index = (torch.rand(labels.shape, device=labels.device) * number).long()
        columns = torch.arange(labels.shape[1], device=labels.device)
        prototypes = self.stored.vectors[columns, index.clamp(max=self.prototypes - 1)]
        return losses.blend_with(features, labels, prototypes.to(features.dtype), chosen, beta)
