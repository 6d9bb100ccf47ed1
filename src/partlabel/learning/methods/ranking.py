"""Methods that put present labels before absent ones.

[1] Li et al., Improving Pairwise Ranking for Multi-label Image Classification, CVPR 2017 (LSEP).
[2] Weston et al., WSABIE: Scaling Up To Large Vocabulary Image Annotation, IJCAI 2011.
[3] Zhang et al., Fast Zero-Shot Image Tagging, CVPR 2016 (Fast0Tag).
"""

import warnings
from typing import ClassVar

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.base.ranges import Epochs, Rate, Size
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.labels.formats.vectors import read_vectors
from partlabel.learning import losses
from partlabel.learning.cooccurrence import label_vectors
from partlabel.learning.method import OnLogits, Stage, Task, warmed
from partlabel.models import Classifier
from partlabel.models.heads import LabelVectors


class Lsep(OnLogits):
    """Labels known to be present should score higher than those known to be absent (LSEP) [1].

    Ranks the labels of an image, not the images of a class: so it begins with cross-entropy. Needs
    labels that are known to be absent.

    Args:
        warmup: epochs of cross-entropy on known labels; None for half of them.
    """

    def __init__(self, warmup: Epochs | None = None) -> None:
        super().__init__()
        self.warmup = warmup
        self.stage, self.last = 0, 0 if warmup == 0 else 1

    def prepare(self, task: Task) -> None:
        """Warn where this must fail."""
        _warn_of_nothing_to_rank(task.labels, "lsep")

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """Cross-entropy, then ranks."""
        return warmed(self.warmup, epochs, patience)

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Ranks count from the second stage on."""
        self.stage = stage

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.lsep`."""
        if self.stage < self.last:
            return losses.bce(logits, batch.labels, "batch")
        return losses.lsep(logits, batch.labels)


class Wsabie(OnLogits):
    """Pictures and labels become vectors; the product with a present label must be larger [2].

    Needs labels that are known to be absent.

    Args:
        width: of the vectors.
        vectors: to begin with: ``cooccurrence`` finds them from labels that come together; or a
            CSV file with the header class,x,y... and ``width`` numbers for each class.
        margin: by how much larger. Paper: 1.
    """

    name: ClassVar[str] = "wsabie"
    in_one_batch = False  # ranks change by leaps

    def __init__(self, width: Size = 50, vectors: str = "cooccurrence", margin: Rate = 1.0) -> None:
        super().__init__()
        self.width, self.margin, self.source = width, margin, vectors

    def head(self, features: int, classes: int) -> nn.Module:
        """One layer; vectors of labels are learned."""
        return LabelVectors(features, classes, self.width, learned=True)

    def prepare(self, task: Task) -> None:
        """Find the vectors of labels."""
        _warn_of_nothing_to_rank(task.labels, self.name)
        self.vectors = find_vectors(self.source, task.labels, self.width)

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Begin with these vectors."""
        assert isinstance(model.head, LabelVectors)
        model.head.tell(self.vectors)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.warp`."""
        return losses.warp(logits, batch.labels, self.margin)


class Fast0Tag(Wsabie):
    """A picture becomes a direction along which present labels come first (Fast0Tag) [3].

    Vectors of labels stay as they are. Needs labels that are known to be absent.

    Args:
        width, vectors: see ``wsabie``. Paper: 300, word vectors.
        hidden: width of the layer in between.
    """

    name: ClassVar[str] = "fast0tag"

    def __init__(self, width: Size = 50, vectors: str = "cooccurrence", hidden: Size = 512) -> None:
        super().__init__(width, vectors)
        self.hidden = hidden

    def head(self, features: int, classes: int) -> nn.Module:
        """Two layers."""
        return LabelVectors(features, classes, self.width, self.hidden)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.ranknet`."""
        return losses.ranknet(logits, batch.labels)


def find_vectors(source: str, labels: LabelTable, width: int) -> Tensor:
    """[C, width] from a file, or from which labels come together."""
    if source == "cooccurrence":
        return torch.from_numpy(label_vectors(labels, width))
    found = torch.from_numpy(read_vectors(source, list(labels.classes)))
    if found.shape[1] != width:
        raise InputError(f"{source}: vectors have {found.shape[1]} numbers; set width to that")
    return found


def _warn_of_nothing_to_rank(labels: LabelTable, method: str) -> None:
    if not labels.counts().absent.any():
        warnings.warn(
            f"no training label is known to be absent: {method} has nothing to put present labels "
            "before. Take em-apl, or an",
            PartlabelWarning,
            stacklevel=3,
        )
