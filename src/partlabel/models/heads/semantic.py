"""A picture becomes a vector, and is compared with a vector of each class.

[1] Weston et al., WSABIE: Scaling Up To Large Vocabulary Image Annotation, IJCAI 2011.
[2] Zhang et al., Fast Zero-Shot Image Tagging, CVPR 2016.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from partlabel.base.ranges import Count, Size


class LabelVectors(nn.Module):
    """The mean of the map becomes a vector, by one layer [1] or two [2], compared with classes'.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        width: of the vectors.
        hidden: width of a layer in between, 0 for none.
        learned: whether the vectors of classes are trained too.
    """

    needs_maps = False
    vectors: Tensor
    told: Tensor

    def __init__(
        self,
        features: int,
        classes: int,
        width: Size = 50,
        hidden: Count = 0,
        *,
        learned: bool = False,
    ) -> None:
        super().__init__()
        first = [nn.Linear(features, hidden), nn.ReLU()] if hidden else []
        self.embed = nn.Sequential(*first, nn.Linear(hidden or features, width))
        self.vectors = nn.Parameter(
            normalize(torch.randn(classes, width), dim=1), requires_grad=learned
        )
        self.register_buffer("told", torch.tensor(False))

    @torch.no_grad()
    def tell(self, vectors: Tensor) -> None:
        """Set the vectors of classes [C, width], once: what was learned since then stays."""
        if not self.told:
            self.vectors.copy_(normalize(vectors, dim=1))
            self.told.fill_(True)

    def forward(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C]."""
        seen: Tensor = self.embed(maps.mean(dim=(2, 3)))
        return seen @ self.vectors.T.to(seen.dtype)
