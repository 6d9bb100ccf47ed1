"""What a pretrained network recognises by itself, as further features.

A network that was pretrained on labelled images comes with a classifier for the classes of those
images, such as the 1,000 of ImageNet. Its probabilities say in a few large numbers what the image
shows. A linear head on the features alone would have to learn that from the labels.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from partlabel.base.numerics import at_least_single
from partlabel.models.powers import power_gain, signed_power

_SMALLEST = 1e-12  # variance of probabilities


class OwnClasses(nn.Module):
    """Adds the probabilities of a network's own classes to its feature maps; never trained.

    Unless ``at_positions``, the probabilities are those of the whole image, the same at all
    positions. The mean of the result over positions then has the powers of the mean features, and
    after them the powers of the probabilities, times ``weight``. With ``at_positions``, powers and
    probabilities are those of each position.

    Args:
        features: D, channels of the feature map.
        classes: K, number of the network's own classes.
        weight: of the probabilities beside the features.
        power: of features and probabilities.
        at_positions: whether each position has probabilities of its own.

    >>> own = OwnClasses(8, 5, weight=2.0)
    >>> own(torch.rand(2, 8, 7, 7)).shape
    torch.Size([2, 13, 7, 7])
    """

    matrix: Tensor
    bias: Tensor

    def __init__(
        self,
        features: int,
        classes: int,
        weight: float,
        power: float = 0.5,
        *,
        at_positions: bool = False,
    ) -> None:
        super().__init__()
        self.weight, self.power, self.at_positions = weight, power, at_positions
        self.register_buffer("matrix", torch.zeros(classes, features))
        self.register_buffer("bias", torch.zeros(classes))

    @torch.no_grad()
    def use(self, classifier: nn.Linear) -> "OwnClasses":
        """Take the weights of the network's own classifier."""
        self.matrix.copy_(classifier.weight)
        self.bias.copy_(classifier.bias)
        return self

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to maps [B, D + K, H, W]."""
        means = maps.mean(dim=(2, 3), keepdim=True)
        logits = conv2d(
            maps if self.at_positions else means, self.matrix[:, :, None, None], self.bias
        )
        own = self.weight * at_least_single(logits).softmax(dim=1) ** self.power
        if self.at_positions:
            maps = signed_power(maps, self.power)
        elif self.power != 1:
            maps = maps * power_gain(means, self.power)
        return torch.cat([maps, own.expand(-1, -1, *maps.shape[2:])], dim=1)

    @torch.no_grad()
    def balance(self, maps: Iterable[Tensor], size: float) -> None:
        """Set the weight so that probabilities have ``size`` times the deviation of the features.

        Args:
            maps: batches of feature maps [B, D, H, W], of which one at a time is in memory.
            size: of the probabilities, relative to the features.
        """
        self.weight = 1.0
        rows, total, squares = 0, torch.zeros(()), torch.zeros(())
        for part in maps:
            values = self(part).movedim(1, -1).flatten(0, -2)
            rows += len(values)
            total = total + values.sum(dim=0, dtype=torch.float64)
            squares = squares + values.square().sum(dim=0, dtype=torch.float64)
        variances = (squares / rows - (total / rows).square()).clamp(min=0)
        features, classes = variances.tensor_split([self.matrix.shape[1]])
        ratio = float(features.sum() / classes.sum().clamp(min=_SMALLEST))
        self.weight = float(f"{size * ratio**0.5:.3g}") or 1.0
