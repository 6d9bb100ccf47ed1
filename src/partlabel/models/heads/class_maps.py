"""Heads that score every class at every place of the feature map, and pool that."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from partlabel.base.ranges import Dropout
from partlabel.models.heads.graph import Refined


class MapHead(nn.Module, ABC):
    """A layer that gives a map for each class; subclasses say how a map becomes a logit.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        dropout: share of the numbers of a feature map that are left out in training.
    """

    needs_maps = True

    def __init__(self, features: int, classes: int, dropout: Dropout = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Conv2d(features, classes, kernel_size=1)

    def class_maps(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C, H, W]: the scores of each place."""
        scores: Tensor = self.classifier(self.dropout(maps))
        return scores

    @abstractmethod
    def pool(self, class_maps: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C]."""

    def forward(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C]."""
        return self.pool(self.class_maps(maps))


def class_maps_of(head: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """How a head, or the one that it refines, scores each place; None if it does not.

    What is found maps features [B, D, H, W] to scores [B, C, H, W].
    """
    while isinstance(head, Refined):
        head = head.head
    found: Callable[[Tensor], Tensor] | None = getattr(head, "class_maps", None)
    return found
