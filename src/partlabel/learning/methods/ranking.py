"""Methods that rank present labels above absent ones.

[1] Li et al., Improving Pairwise Ranking for Multi-label Image Classification, CVPR 2017 (LSEP).
[2] Weston et al., WSABIE: Scaling Up To Large Vocabulary Image Annotation, IJCAI 2011.
[3] Zhang et al., Fast Zero-Shot Image Tagging, CVPR 2016 (Fast0Tag).
"""

import warnings
from typing import ClassVar

from torch import Tensor, nn

from partlabel.base.errors import PartlabelWarning
from partlabel.base.ranges import Epochs, Rate, Size
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning import losses
from partlabel.learning.class_knowledge import initial_vectors
from partlabel.learning.extensions import FollowsStages
from partlabel.learning.method import (
    OnLogits,
    Stage,
    Task,
    warm_up_stages,
    weights_by_images,
    weights_by_labels,
)
from partlabel.models import Classifier
from partlabel.models.heads import LabelVectors


class Lsep(OnLogits, FollowsStages):
    """Ignores unknown labels; ranks known present labels above known absent ones (LSEP) [1].

    The loss ranks the labels within an image, not the images within a class. So the training starts
    with a warm-up of cross-entropy on known labels. Needs labels that are known to be absent.

    Args:
        warmup: epochs of cross-entropy; None for half of all epochs.
    """

    def __init__(self, warmup: Epochs | None = None) -> None:
        super().__init__()
        self.warmup = warmup
        self.stage, self.ranking_stage = 0, 0 if warmup == 0 else 1

    def prepare(self, task: Task) -> None:
        """Warn if no training label is known to be absent."""
        _warn_of_nothing_to_rank(task.labels, "lsep")

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """Cross-entropy, then ranking."""
        return warm_up_stages(self.warmup, epochs, patience)

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """The ranking loss is used after the warm-up."""
        self.stage = stage

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """By known labels in the warm-up, then by images."""
        is_warmup = self.stage < self.ranking_stage
        return (weights_by_labels if is_warmup else weights_by_images)(batch)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.lsep`; in the warm-up, :func:`losses.bce`."""
        if self.stage < self.ranking_stage:
            return losses.bce(logits, batch.labels, "batch")
        return losses.lsep(logits, batch.labels)


class Wsabie(OnLogits, FollowsStages):
    """Ignores unknown labels; ranks classes by products of image and class vectors (WSABIE) [2].

    The product of an image's vector with that of a class known to be present must be larger than
    with that of a class known to be absent. Needs labels that are known to be absent.

    Args:
        width: width of the vectors.
        vectors: initial vectors of the classes. ``cooccurrence``: computed from which labels occur
            together; or a CSV file with the header class,x,y... and ``width`` numbers per class.
        margin: smallest difference between the two products. Paper: 1.
    """

    name: ClassVar[str] = "wsabie"
    files = ("vectors",)
    in_one_batch = False  # ranks are not a continuous function of the weights

    def __init__(self, width: Size = 50, vectors: str = "cooccurrence", margin: Rate = 1.0) -> None:
        super().__init__()
        self.width, self.margin, self.source = width, margin, vectors

    def head(self, features: int, classes: int) -> nn.Module:
        """One layer for images, and trained class vectors."""
        return LabelVectors(features, classes, self.width, learned=True)

    def prepare(self, task: Task) -> None:
        """Compute or read the initial class vectors."""
        _warn_of_nothing_to_rank(task.labels, self.name)
        self.vectors = initial_vectors(self.source, task.labels, self.width)

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Set the initial class vectors."""
        assert isinstance(model.head, LabelVectors)
        model.head.set_vectors(self.vectors)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.warp`."""
        return losses.warp(logits, batch.labels, self.margin)


class Fast0Tag(Wsabie):
    """Ignores unknown labels; ranks classes along a direction per image (Fast0Tag) [3].

    The network maps an image to a direction, along which the vectors of present classes come before
    those of absent ones. Class vectors are not trained. Needs labels that are known to be absent.

    Args:
        width, vectors: see ``wsabie``. Paper: 300, word vectors.
        hidden: width of the hidden layer.
    """

    name: ClassVar[str] = "fast0tag"

    def __init__(self, width: Size = 50, vectors: str = "cooccurrence", hidden: Size = 512) -> None:
        super().__init__(width, vectors)
        self.hidden = hidden

    def head(self, features: int, classes: int) -> nn.Module:
        """Two layers for images, and fixed class vectors."""
        return LabelVectors(features, classes, self.width, self.hidden)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.ranknet`."""
        return losses.ranknet(logits, batch.labels)


def _warn_of_nothing_to_rank(labels: LabelTable, method: str) -> None:
    if not labels.counts().absent.any():
        warnings.warn(
            f"no training label is known to be absent: {method} has nothing to rank present labels "
            "above. Use em-apl, or an",
            PartlabelWarning,
            stacklevel=3,
        )
