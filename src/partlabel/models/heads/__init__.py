"""Heads: feature maps [B, D, H, W] to logits [B, C]; and refiners, logits to logits."""

from partlabel.models.heads.graph import GraphRefiner, Refined
from partlabel.models.heads.linear import Linear
from partlabel.models.heads.weldon import Weldon, weldon_pool

__all__ = ["GraphRefiner", "Linear", "Refined", "Weldon", "weldon_pool"]
