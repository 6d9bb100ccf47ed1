"""A graph of training images: each is linked to the images with the most similar features."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from partlabel.learning.method import Predict
from partlabel.models import Classifier

_CHUNK = 1024  # images that are compared with all others at a time


def nearest(features: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k other rows with the largest cosine to each row [n, D].

    Returns:
        Their indices [n, k], and their cosines [n, k], 0 where negative. If there are fewer other
        rows, a row repeats itself with 0.

    >>> nearest(torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]), 1)
    (tensor([[2],
            [2],
            [0]]), tensor([[0.7071],
            [0.7071],
            [0.7071]]))
    """
    unit, number = normalize(features, dim=1), len(features)
    index = torch.arange(number)[:, None].repeat(1, k)
    strength = torch.zeros(number, k, dtype=features.dtype)
    found = min(k, number - 1)
    for first in range(0, number if found > 0 else 0, _CHUNK):
        rows = torch.arange(first, min(first + _CHUNK, number))
        cosines = unit[rows] @ unit.T
        cosines[torch.arange(len(rows)), rows] = -torch.inf
        best = cosines.topk(found, dim=1)
        index[rows, :found], strength[rows, :found] = best.indices, best.values.clamp(min=0)
    return index, strength


class ImageGraph(nn.Module):
    """Links between training images, computed once and saved with the method.

    Args:
        images: N, number of training images.
        k: number of links of an image.
    """

    linked: Tensor
    strength: Tensor
    is_built: Tensor

    def __init__(self, images: int, k: int) -> None:
        super().__init__()
        self.register_buffer("linked", torch.arange(images)[:, None].repeat(1, k))
        self.register_buffer("strength", torch.zeros(images, k))
        self.register_buffer("is_built", torch.tensor(False))

    def build(self, predict: Predict) -> None:
        """Link the images by their pooled features, if this was not done before."""
        if self.is_built:
            return
        parts = list(predict(_pooled))
        if parts:
            rows = torch.cat([torch.from_numpy(rows) for rows, _ in parts])
            index, strength = nearest(
                torch.cat([part.cpu() for _, part in parts]), self.linked.shape[1]
            )
            self.linked[rows] = rows[index].to(self.linked.device)
            self.strength[rows] = strength.to(self.strength)
        self.is_built.fill_(True)

    def within(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The links between the images of a batch.

        Args:
            rows: [B]

        Returns:
            [B, k] positions in the batch, and [B, k] strengths, 0 for an image that is not in it.
        """
        position = torch.full_like(self.linked[:, 0], -1)
        position[rows] = torch.arange(len(rows), device=rows.device)
        others = position[self.linked[rows]]
        return others.clamp(min=0), self.strength[rows] * (others >= 0)


def _pooled(model: Classifier, inputs: Tensor) -> Tensor:
    maps: Tensor = model.backbone(inputs)
    return maps.mean(dim=(2, 3))
