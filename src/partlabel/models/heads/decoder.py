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
from partlabel.models.heads.head import HasClassMaps


def sine_positions(rows: int, columns: int, width: int) -> Tensor:
    """Encodings of the positions of a map: sines and cosines of row and column [2].

    The first half of an encoding is that of the row, the second half that of the column. Each has
    sines and then cosines of its position, divided by 10000^(i / n) for the i-th of n.

    Returns:
        [rows, columns, width]

    >>> sine_positions(2, 1, 4)[:, 0, :2]
    tensor([[0.0000, 1.0000],
            [0.8415, 0.5403]])
    """
    encodings = torch.zeros(rows, columns, width)
    half = width // 2
    for size, axis, first in ((rows, 0, 0), (columns, 1, half)):
        number = max((width - half if first else half) // 2, 1)
        rates = 10000.0 ** (-torch.arange(number) / number)
        angles = torch.arange(size)[:, None] * rates
        code = torch.cat([angles.sin(), angles.cos()], dim=1)[:, : width - first]
        encodings[:, :, first : first + code.shape[1]] = code[:, None] if axis == 0 else code[None]
    return encodings


class QueryAttention(nn.Module):
    """Queries attend to positions, then pass through a hidden layer; both with a residual [2].

    Args:
        width: width of queries and positions.
        heads: number of attention heads.
        hidden: width of the hidden layer.
        dropout: dropout probability.
    """

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Tensor, positions: Tensor) -> Tensor:
        """Queries [B, C, width] and positions [B, P, width] to new queries [B, C, width]."""
        gathered, _ = self.attend(queries, positions, positions, need_weights=False)
        attended = self.norms[0](queries + self.dropout(gathered))
        result: Tensor = self.norms[1](attended + self.dropout(self.mlp(attended)))
        return result

    def weights(self, queries: Tensor, positions: Tensor) -> Tensor:
        """The attention [B, C, P] of each query, the mean over all heads."""
        _, weights = self.attend(queries, positions, positions, need_weights=True)
        assert isinstance(weights, Tensor)
        return weights


class LabelDecoder(HasClassMaps):
    """Self-attention between positions, then one learned query per class attends to them [1, 2].

    Queries do not attend to each other, so the cost is linear in the number of classes. The result
    is one embedding per image and class. Each class has its own linear classifier on it, and a
    contrastive loss can use its projection to the unit sphere. Maps can have any size.

    The paper does not state the size of its decoder. The authors' code has width 2048, 2 layers,
    feedforward 8192 and positions. The smaller defaults are for frozen features and few labels.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        width: width of embeddings and attention, at most D, rounded down to a multiple of
            ``heads``.
        heads: number of attention heads.
        dropout: dropout probability in all blocks.
        layers: number of blocks in which the queries attend to the positions.
        feedforward: width of the hidden layer in each block; None for twice the width.
        positions: add sine encodings of row and column to the feature map.
        projection: width of projected embeddings, 0 for no projection.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        width: Size = 256,
        heads: Size = 4,
        dropout: Dropout = 0.1,
        layers: Size = 1,
        feedforward: Size | None = None,
        positions: bool = False,
        *,
        projection: Count = 0,
    ) -> None:
        super().__init__()
        width = max(min(width, features) // heads, 1) * heads
        hidden = feedforward or 2 * width
        self.positions = positions
        self.shrink = nn.Linear(features, width)
        self.encoder = nn.TransformerEncoderLayer(width, heads, hidden, dropout, batch_first=True)
        self.queries = nn.Parameter(torch.randn(classes, width) * width**-0.5)
        self.layers = nn.ModuleList(
            QueryAttention(width, heads, hidden, dropout) for _ in range(layers)
        )
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
        embeddings = self.queries.expand(maps.shape[0], -1, -1)
        for layer in self.layers:
            embeddings = layer(embeddings, positions)
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

        The attention is that of the last layer. A value is the mean attention weight over all heads
        minus the weight of uniform attention, 1 / (H W). So the values of a map sum to 0.
        """
        positions = self._encode(maps)
        queries = self.queries.expand(maps.shape[0], -1, -1)
        for layer in self.layers[:-1]:
            queries = layer(queries, positions)
        last = self.layers[-1]
        assert isinstance(last, QueryAttention)
        weights = last.weights(queries, positions)
        return (weights - 1 / weights.shape[2]).view(*weights.shape[:2], *maps.shape[2:])

    def _encode(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to positions [B, H * W, width], after self-attention."""
        values = relu(self.shrink(maps.flatten(2).transpose(1, 2)))
        if self.positions:
            encodings = sine_positions(maps.shape[2], maps.shape[3], values.shape[2])
            values = values + encodings.to(values).flatten(0, 1)
        positions: Tensor = self.encoder(values)
        return positions

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Also load older weights, of a decoder with one layer whose parts were not in ``layers``.

        In the oldest ones, ``mlp`` is called ``think``.
        """
        parts = {"attend.": "attend.", "mlp.": "mlp.", "think.": "mlp.", "norms.": "norms."}
        for old, new in parts.items():
            for name in [name for name in state if name.startswith(prefix + old)]:
                value = state.pop(name)
                state[f"{prefix}layers.0.{new}{name.removeprefix(prefix + old)}"] = value
        super()._load_from_state_dict(state, prefix, *rest)
