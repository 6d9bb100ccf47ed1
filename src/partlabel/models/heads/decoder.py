"""A query per class gathers from a feature map what speaks for that class.

[1] Xie et al., Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels,
    NeurIPS 2022.
[2] Vaswani et al., Attention Is All You Need, NIPS 2017.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

from partlabel.base.ranges import Count, Dropout, Size


class LabelDecoder(nn.Module):
    """Places attend to each other, a learned query per class attends to the places [1, 2].

    Queries do not attend to each other, so the cost is linear in the number of classes. Each class
    has an embedding of its own in each image, a linear classifier on it, and, for contrasts between
    embeddings, a projection to the unit sphere.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        width: of embeddings and attention, made a multiple of ``heads``; D if that is less. The
            paper does not tell its own.
        heads: of attention.
        dropout: share of the numbers left out in training, in both blocks.
        projection: width of projected embeddings, 0 for none. Paper: 128.

    Places have no numbers: what a place means is what is seen there, and any size of map will do.
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
        self.think = nn.Sequential(
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
        """[B, D, H, W] to [B, C]."""
        return self.classify(self.embed(maps))

    def embed(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to the embeddings of all classes [B, C, width]."""
        places = self._places(maps)
        queries = self.queries.expand(len(maps), -1, -1)
        gathered, _ = self.attend(queries, places, places, need_weights=False)
        seen = self.norms[0](queries + self.dropout(gathered))
        embeddings: Tensor = self.norms[1](seen + self.dropout(self.think(seen)))
        return embeddings

    def classify(self, embeddings: Tensor) -> Tensor:
        """[B, C, width] to [B, C]: each class by its own classifier."""
        return (embeddings * self.weight).sum(dim=2) + self.bias

    def project(self, embeddings: Tensor) -> Tensor:
        """[..., width] to unit vectors [..., projection]."""
        assert self.projection is not None
        return normalize(self.projection(embeddings).to(self.weight.dtype), dim=-1)

    def class_maps(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C, H, W]: how much more than evenly a query looks at each place.

        The mean over attention heads, less 1 / (H W): the places of a map sum to 0.
        """
        places = self._places(maps)
        queries = self.queries.expand(len(maps), -1, -1)
        _, weights = self.attend(queries, places, places, need_weights=True)
        assert isinstance(weights, Tensor)
        return (weights - 1 / weights.shape[2]).view(*weights.shape[:2], *maps.shape[2:])

    def _places(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, H * W, width], after the places have attended to each other."""
        places: Tensor = self.encoder(relu(self.shrink(maps.flatten(2).transpose(1, 2))))
        return places
