"""A decoder with one query per class that attends to the positions of a feature map.

[1] Xie et al., Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels,
    NeurIPS 2022.
[2] Vaswani et al., Attention Is All You Need, NIPS 2017.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

from partlabel.base.ranges import Count, Dropout, Size


class LabelDecoder(nn.Module):
    """Self-attention between positions, then one learned query per class attends to them [1, 2].

    Queries do not attend to each other, so the cost is linear in the number of classes. The result
    is one embedding per image and class. Each class has its own linear classifier on it, and a
    contrastive loss can use its projection to the unit sphere. There is no positional encoding, so
    maps can have any size.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        width: width of embeddings and attention, at most D, rounded down to a multiple of
            ``heads``. The paper does not state its value.
        heads: number of attention heads.
        dropout: dropout probability in both blocks.
        projection: width of projected embeddings, 0 for no projection. Paper: 128.
    """

    needs_maps = True

    def __init__(
        self,
        features: int,
        classes: int,
        width: Size = 256,
        heads: Size = 4,
        dropout: Dropout = 0.1,
        *,
        projection: Count = 0,
    ) -> None:
        super().__init__()
        width = max(min(width, features) // heads, 1) * heads
        self.shrink = nn.Linear(features, width)
        self.encoder = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout, batch_first=True
        )
        self.queries = nn.Parameter(torch.randn(classes, width) * width**-0.5)
        self.attend = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(2 * width, width)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.dropout = nn.Dropout(dropout)
        self.weight = nn.Parameter(torch.randn(classes, width) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(classes))
        self.projection: nn.Module | None = None
        if projection:
            self.projection = nn.Sequential(
                nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projection)
            )

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        return self.classify(self.embed(maps))

    def embed(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to one embedding per class [B, C, width]."""
        positions = self._encode(maps)
        queries = self.queries.expand(len(maps), -1, -1)
        gathered, _ = self.attend(queries, positions, positions, need_weights=False)
        attended = self.norms[0](queries + self.dropout(gathered))
        embeddings: Tensor = self.norms[1](attended + self.dropout(self.mlp(attended)))
        return embeddings

    def classify(self, embeddings: Tensor) -> Tensor:
        """Embeddings [B, C, width] to logits [B, C], with one linear classifier per class."""
        return (embeddings * self.weight).sum(dim=2) + self.bias

    def project(self, embeddings: Tensor) -> Tensor:
        """Embeddings [..., width] to unit vectors [..., projection]."""
        assert self.projection is not None
        return normalize(self.projection(embeddings).to(self.weight.dtype), dim=-1)

    def class_maps(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to attention maps [B, C, H, W] of the class queries.

        A value is the mean attention weight over all heads minus the weight of uniform attention,
        1 / (H W). So the values of a map sum to 0.
        """
        positions = self._encode(maps)
        queries = self.queries.expand(len(maps), -1, -1)
        _, weights = self.attend(queries, positions, positions, need_weights=True)
        assert isinstance(weights, Tensor)
        return (weights - 1 / weights.shape[2]).view(*weights.shape[:2], *maps.shape[2:])

    def _encode(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to positions [B, H * W, width], after self-attention."""
        positions: Tensor = self.encoder(relu(self.shrink(maps.flatten(2).transpose(1, 2))))
        return positions

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Also load older weights, in which ``mlp`` was called ``think``."""
        for name in [name for name in state if name.startswith(f"{prefix}think.")]:
            state[f"{prefix}mlp.{name.removeprefix(f'{prefix}think.')}"] = state.pop(name)
        super()._load_from_state_dict(state, prefix, *rest)
