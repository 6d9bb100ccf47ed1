"""Global average pooling and a linear layer."""

from torch import Tensor, nn
from torch.nn.functional import conv2d

from partlabel.base.ranges import Dropout, Power
from partlabel.models.heads.head import HasClassMaps, HasClassRows
from partlabel.models.powers import power_gain, signed_power


class Linear(HasClassMaps, HasClassRows):
    """Global average pooling, then a linear layer.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        dropout: probability that a pooled feature is set to 0 in training.
        power: of pooled features. 0.5, their square root, makes large features weigh less, which
            often generalises better if the network is frozen.
        needs_maps: whether whole maps are needed for something else than the logits.

    >>> import torch
    >>> Linear(8, 3)(torch.zeros(2, 8, 7, 7)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        features: int,
        classes: int,
        dropout: Dropout = 0.0,
        power: Power = 1.0,
        *,
        needs_maps: bool = False,
    ) -> None:
        super().__init__()
        self.power, self._needs_maps = power, needs_maps
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(features, classes)

    @property
    def needs_maps(self) -> bool:
        """Whether it must get whole maps; the logits depend on their means only."""
        return self._needs_maps

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        # of given vectors there is one position, and a mean would take as long as the product below
        means = maps.flatten(1) if maps.shape[2:].numel() == 1 else maps.mean(dim=(2, 3))
        pooled = signed_power(means, self.power)
        logits: Tensor = self.classifier(self.dropout(pooled))
        return logits

    def class_maps(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to the logits at each position [B, C, H, W].

        Their mean over positions is the result of :meth:`forward` without dropout.
        """
        if self.power != 1:
            maps = maps * power_gain(maps.mean(dim=(2, 3), keepdim=True), self.power)
        return conv2d(maps, self.classifier.weight[:, :, None, None], self.classifier.bias)
