"""What the rest of the program may ask of a head."""

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Head(nn.Module):
    """A module from feature maps [B, D, H, W] to logits [B, C].

    A head that is a plain ``nn.Module`` works too. It always gets whole maps.
    """

    @property
    def needs_maps(self) -> bool:
        """Whether it must get whole maps. If not, a cache may store the mean of each map."""
        return True


class HasClassMaps(Head, ABC):
    """A head that can say how each position of the feature map contributes to a class."""

    @abstractmethod
    def class_maps(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to class maps [B, C, H, W]."""


class HasClassRows(Head):
    """A head in which each weight has one row per class, so that classes can be trained apart."""


def needs_maps(head: nn.Module) -> bool:
    """Whether a head must get whole maps; see :class:`Head`.

    >>> needs_maps(nn.Flatten())
    True
    """
    return not isinstance(head, Head) or head.needs_maps
