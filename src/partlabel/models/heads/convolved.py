"""Classifiers computed by graph convolutions over classes.

[1] Chen et al., Multi-Label Image Recognition with Graph Convolutional Networks, CVPR 2019.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, leaky_relu

from partlabel.base.ranges import Size
from partlabel.models.heads.informed import Informed

Pool = Literal["max", "mean"]

_SLOPE = 0.2  # of LeakyReLU, as in the authors' code


class GraphClassifier(Informed):
    """Pooled features times classifiers, which two graph convolutions compute of class vectors [1].

    With class vectors Z [C, width] and the graph A [C, C] the classifiers are
    A LeakyReLU(A Z W1) W2, [C, D]. The convolutions have no biases, as in [1], but each class has
    one. In [1] features are never negative, and their sum does the work of a bias. Principal
    components and given vectors have a mean of about 0: without a bias, all logits would too.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        width: width of the class vectors.
        hidden: width between the convolutions.
        pool: how features are pooled.
    """

    def __init__(
        self, features: int, classes: int, width: Size = 50, hidden: Size = 1024, pool: Pool = "max"
    ) -> None:
        super().__init__(classes, width)
        self.pool = pool
        self.first = nn.Parameter(_uniform(width, hidden))
        self.second = nn.Parameter(_uniform(hidden, features))
        self.bias = nn.Parameter(torch.zeros(classes))

    @property
    def needs_maps(self) -> bool:
        """Whether it must get whole maps: to find the largest values."""
        return self.pool == "max"

    def classifiers(self) -> Tensor:
        """The weights [C, D] of all classes."""
        hidden = leaky_relu(self.graph @ (self.vectors @ self.first), _SLOPE)
        return self.graph @ (hidden @ self.second)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        pooled = maps.amax(dim=(2, 3)) if self.pool == "max" else maps.mean(dim=(2, 3))
        return pooled @ self.classifiers().T + self.bias

    def class_maps(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to the logits at each position [B, C, H, W]."""
        return conv2d(maps, self.classifiers()[:, :, None, None], self.bias)


def _uniform(rows: int, columns: int) -> Tensor:
    """Initial weights, as in the authors' code."""
    bound = columns**-0.5
    return torch.empty(rows, columns).uniform_(-bound, bound)
