"""Heads that compute a score of each class at each position of the feature map, and pool these."""

from abc import abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from partlabel.base.ranges import Dropout
from partlabel.models.heads.evidence import WithEvidence
from partlabel.models.heads.graph import Refined
from partlabel.models.heads.head import HasClassMaps, HasClassRows


class MapHead(HasClassMaps, HasClassRows):
    """A layer that computes one map per class. Subclasses define how a map becomes a logit.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        dropout: probability that a number of the feature map is set to 0 in training.
    """

    def __init__(self, features: int, classes: int, dropout: Dropout = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Conv2d(features, classes, kernel_size=1)

    def class_maps(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to class maps [B, C, H, W], the scores at each position."""
        scores: Tensor = self.classifier(self.dropout(maps))
        return scores

    @abstractmethod
    def pool(self, class_maps: Tensor) -> Tensor:
        """Class maps [B, C, H, W] to logits [B, C]."""

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        return self.pool(self.class_maps(maps))


def class_maps_of(head: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """The function by which a head computes class maps, or None if it has none.

    For a refined head this is the function of the head inside. It maps feature maps [B, D, H, W] to
    class maps [B, C, H, W].
    """
    while isinstance(head, Refined | WithEvidence):
        head = head.head
    return head.class_maps if isinstance(head, HasClassMaps) else None
