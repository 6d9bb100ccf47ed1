"""Images and classes as vectors in one space: a logit is a product of two vectors.

[1] Weston et al., WSABIE: Scaling Up To Large Vocabulary Image Annotation, IJCAI 2011.
[2] Zhang et al., Fast Zero-Shot Image Tagging, CVPR 2016.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from partlabel.base.ranges import Count, Size
from partlabel.models.heads.head import Head


class LabelVectors(Head):
    """Map pooled features to a vector by one layer [1] or two [2]; multiply it with class vectors.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        width: width of the vectors.
        hidden: width of a hidden layer, 0 for none.
        learned: whether the class vectors are trained too.
    """

    needs_maps = False
    vectors: Tensor
    is_set: Tensor

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
        hidden_layer = [nn.Linear(features, hidden), nn.ReLU()] if hidden else []
        self.embed = nn.Sequential(*hidden_layer, nn.Linear(hidden or features, width))
        self.vectors = nn.Parameter(
            normalize(torch.randn(classes, width), dim=1), requires_grad=learned
        )
        self.register_buffer("is_set", torch.tensor(False))

    @torch.no_grad()
    def set_vectors(self, vectors: Tensor) -> None:
        """Set the class vectors. Later calls have no effect, so that training can change them.

        Args:
            vectors: [C, width]
        """
        if not self.is_set:
            self.vectors.copy_(normalize(vectors, dim=1))
            self.is_set.fill_(True)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        embedded: Tensor = self.embed(maps.mean(dim=(2, 3)))
        return embedded @ self.vectors.T.to(embedded.dtype)
