"""Several heads on one feature map, whose logits are added up."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from partlabel.models.heads.class_maps import class_maps_of
from partlabel.models.heads.head import HasClassMaps, needs_maps
from partlabel.models.heads.linear import Linear


class Branch(HasClassMaps):
    """The weighted sum of the logits of heads that share a reduction of the feature map.

    Args:
        reduction: feature maps [B, D, H, W] to the maps [B, d, H, W] that the heads use.
        heads: each maps [B, d, H, W] to logits [B, C].
        weights: one per head.
    """

    weights: Tensor

    def __init__(
        self, reduction: nn.Module, heads: Sequence[nn.Module], weights: Sequence[float]
    ) -> None:
        super().__init__()
        self.reduction, self.heads = reduction, nn.ModuleList(heads)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32))

    @property
    def needs_maps(self) -> bool:
        """Whether a head must get whole maps."""
        return any(needs_maps(head) for head in self.heads)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        return self._sum(self.reduction(maps), list(self.heads))

    def class_maps(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to the weighted sum of class maps [B, C, H, W]."""
        functions = [class_maps_of(head) for head in self.heads]
        return self._sum(self.reduction(maps), [each for each in functions if each is not None])

    def _sum(self, maps: Tensor, parts: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
        weighted = [w * part(maps) for w, part in zip(self.weights, parts, strict=True)]
        return torch.stack(weighted).sum(dim=0)


class Ensemble(HasClassMaps):
    """The sum of the logits of several branches.

    Args:
        branches: each maps feature maps [B, D, H, W] to logits [B, C].
    """

    def __init__(self, branches: Sequence[Branch]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    @property
    def needs_maps(self) -> bool:
        """Whether a branch must get whole maps. If not, a cache may store their means instead."""
        return any(needs_maps(branch) for branch in self.branches)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        return torch.stack([branch(maps) for branch in self.branches]).sum(dim=0)

    def class_maps(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to the sum of the class maps [B, C, H, W] of all heads."""
        parts = [b.class_maps(maps) for b in self.branches if isinstance(b, Branch)]
        return torch.stack(parts).sum(dim=0)


def merge_linear(heads: Sequence[Linear], weights: Sequence[float]) -> Linear:
    """One linear head whose logits are the weighted sum of those of linear heads.

    >>> first, second = Linear(4, 2), Linear(4, 2)
    >>> maps = torch.ones(1, 4, 3, 3)
    >>> both = merge_linear([first, second], [0.25, 0.5])
    >>> torch.allclose(both(maps), 0.25 * first(maps) + 0.5 * second(maps), atol=1e-6)
    True
    """
    layers = [head.classifier for head in heads]
    power = heads[0].power  # of all heads
    merged = Linear(layers[0].in_features, layers[0].out_features, power=power)
    with torch.no_grad():
        merged.classifier.weight.copy_(_weighted([layer.weight for layer in layers], weights))
        merged.classifier.bias.copy_(_weighted([layer.bias for layer in layers], weights))
    return merged


def _weighted(parts: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    products = [weight * part.double() for weight, part in zip(weights, parts, strict=True)]
    return torch.stack(products).sum(dim=0)
