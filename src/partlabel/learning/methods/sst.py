"""Unknown labels from the other labels of an image, and from other images.

[1] Chen et al., Structured Semantic Transfer for Multi-Label Recognition with Partial Labels,
    AAAI 2022.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.base.ranges import Epochs, Share, Size, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.class_features import ClassFeatures
from partlabel.learning.class_knowledge import InformsHead
from partlabel.learning.extensions import Artifacts, HasArtifacts
from partlabel.learning.method import Figure, Predict, Task
from partlabel.learning.pseudo_labels.diary import Diary
from partlabel.models import Classifier
from partlabel.models.heads import Decoupled


class SemanticTransfer(InformsHead, HasArtifacts):
    """What methods have in common that give labels within and across images.

    Attributes:
        thresholds: [2] how high the scores within and across images must be.

    Args:
        width, vectors, channels, joint, steps: see ``ssgrl``.
        start: epochs before unknown labels count as present.
        cooccurrence, contrast: weights of the losses of pairs of classes and of images.
        size: number of feature vectors per class to compare with.
    """

    thresholds: Tensor
    transfers: Tensor

    def __init__(
        self,
        width: int,
        vectors: str,
        channels: int,
        joint: int,
        steps: int,
        start: int,
        cooccurrence: float,
        contrast: float,
        size: int,
    ) -> None:
        super().__init__(width, vectors)
        self.channels, self.joint, self.steps, self.start = channels, joint, steps, start
        self.cooccurrence, self.contrast, self.size = cooccurrence, contrast, size
        self.register_buffer("transfers", torch.zeros((), dtype=torch.bool))
        self.diary = Diary()

    def head(self, features: int, classes: int) -> nn.Module:
        """The head of ``ssgrl``, with scores of pairs of classes."""
        return Decoupled(
            features, classes, self.width, self.channels, self.joint, self.steps, pairs=True
        )

    def prepare(self, task: Task) -> None:
        """Raise an error if no unknown label would ever count as present."""
        super().prepare(task)
        if self.start >= task.epochs:
            raise InputError(
                f"start = {self.start}: no unknown label would count as present within "
                f"{task.epochs} epochs; set more --epochs, or a smaller --set start"
            )
        self.diary.prepare(task)
        self.stored = ClassFeatures(task.labels.shape[1], self.size, self.channels)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Note whether unknown labels count as present."""
        self.diary.begin_epoch(epoch)
        self.transfers.fill_(epoch >= self.start)
        return {}

    def figures(self) -> dict[str, Figure]:
        """Costs, and how many unknown labels per image counted as present."""
        costs = dict.fromkeys(("known", "cooccurrence", "contrast"), Figure.COST)
        counts = dict.fromkeys(("within", "across"), Figure.COUNT)
        return super().figures() | costs | counts

    def is_settled(self, epoch: int) -> bool:
        """Never, because which unknown labels count as present depends on the features."""
        return False

    def artifacts(self) -> Artifacts:
        """The unknown labels that counted as present."""
        return Artifacts(diary=self.diary)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of known and transferred labels, and the losses of pairs."""
        head, labels = model.head, batch.labels
        assert isinstance(head, Decoupled)
        assert head.pair_scores is not None
        features = head.decouple(model.backbone(batch.views["weak"]))
        logits = head.classify(features)
        pair_logits, pairs = head.pair_scores(features), head.pair_scores.pairs
        parts = {
            "known": losses.batch_bce(logits, labels),
            "cooccurrence": losses.pair_cooccurrence(pair_logits, pairs, labels),
            "contrast": losses.label_contrast(features, labels),
        }
        loss = parts["known"] + self.cooccurrence * parts["cooccurrence"]
        loss = loss + self.contrast * parts["contrast"]
        centres = self.centres(features, labels)
        if self.transfers:
            scores = (
                losses.scores_within_images(pair_logits, pairs, labels),
                losses.scores_across_images(features, centres),
            )
            loss = loss + self.further_cost(scores, labels, parts)
            loss = loss + self._transfer(logits, scores, batch, parts)
        parts["positives"] = losses.known_positives(logits, labels)
        return {"loss": loss} | {name: part.detach() for name, part in parts.items()}

    @abstractmethod
    def centres(self, features: Tensor, labels: Tensor) -> Tensor:
        """[C, d] what the feature vectors of this batch are compared with."""

    def further_cost(
        self, scores: tuple[Tensor, Tensor], labels: Tensor, parts: dict[str, Tensor]
    ) -> Tensor | float:
        """A cost of the scores [B, C] within and across images; by default none."""
        return 0.0

    def _transfer(
        self,
        logits: Tensor,
        scores: tuple[Tensor, Tensor],
        batch: Batch,
        parts: dict[str, Tensor],
    ) -> Tensor:
        """Cross-entropy of known labels and those transferred, in each of the two ways."""
        loss, present = logits.new_zeros(()), torch.zeros_like(batch.labels, dtype=torch.bool)
        for name, score, threshold in zip(
            ("within", "across"), scores, self.thresholds.tolist(), strict=True
        ):
            labels = losses.transferred(score, batch.labels, threshold)
            loss = loss + losses.batch_bce(logits, labels)
            is_new = labels != batch.labels
            parts[name], present = is_new.sum() / len(batch), present | is_new
        self.diary.add(batch.rows, present)
        return loss


class StructuredTransfer(SemanticTransfer):
    """Counts unknown labels as present that fit the image's labels or other images (SST) [1].

    The network is that of ``ssgrl``. Within an image, it learns from the feature vectors of two
    classes whether both are known to be present. An unknown label fits if the mean probability with
    all known present labels is high. Across images, feature vectors of a class are pulled together
    where it is known to be present. An unknown label fits if its mean cosine with recent ones is
    high. The loss is the cross-entropy of known labels, of these and the labels from within the
    image, and of these and the labels from across images. Needs labels that are known to be absent.

    Args:
        width, vectors, channels, joint, steps: see ``ssgrl``. The authors' code: 300, word vectors,
            1024, 512, 3.
        start: epochs before unknown labels count as present. Authors' code: 5 of 20.
        threshold: how high both scores must be at first. Authors' code: 0.95.
        fall: the threshold falls by this in each epoch. Authors' code: 0.025.
        lowest: smallest threshold. Authors' code: 0.75.
        cooccurrence: weight of the loss of pairs of classes. Authors' code: 10.
        contrast: weight of the contrastive loss between images. Authors' code: 0.05.
        examples: number of recent feature vectors per class. Authors' code: 100.
    """

    name: ClassVar[str] = "sst"

    def __init__(
        self,
        width: Size = 50,
        vectors: str = "cooccurrence",
        channels: Size = 128,
        joint: Size = 128,
        steps: Size = 3,
        start: Epochs = 5,
        threshold: Share = 0.95,
        fall: Share = 0.025,
        lowest: Share = 0.75,
        cooccurrence: Weight = 10.0,
        contrast: Weight = 0.05,
        examples: Size = 100,
    ) -> None:
        super().__init__(
            width, vectors, channels, joint, steps, start, cooccurrence, contrast, examples
        )
        self.first, self.fall, self.lowest = threshold, fall, lowest
        self.register_buffer("thresholds", torch.ones(2))

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Set the threshold of this epoch."""
        figures = super().before_epoch(epoch, predict)
        if not self.transfers:
            return figures
        self.thresholds.fill_(max(self.first - self.fall * (epoch - self.start), self.lowest))
        return figures | {"threshold": float(self.thresholds[0])}

    def figures(self) -> dict[str, Figure]:
        """Also the threshold."""
        return super().figures() | {"threshold": Figure.SETTING}

    def centres(self, features: Tensor, labels: Tensor) -> Tensor:
        """The centres of recent feature vectors, with those of this batch."""
        self.stored.push(features, labels > 0)
        return self.stored.centres()
