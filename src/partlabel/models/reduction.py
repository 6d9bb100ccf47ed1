"""Reduce the number of channels of feature maps by principal component analysis."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError

_SMALLEST = 1e-8  # of a feature, below which its power is proportional to it


def signed_power(features: Tensor, power: float) -> Tensor:
    """The power of the size of each feature, with its sign.

    >>> signed_power(torch.tensor([4.0, 0.0, -0.25]), 0.5)
    tensor([ 2.0000,  0.0000, -0.5000])
    """
    return features if power == 1 else features * power_gain(features, power)


def power_gain(features: Tensor, power: float) -> Tensor:
    """What each feature is multiplied by to get its power."""
    return features.abs().clamp(min=_SMALLEST) ** (power - 1)


class Reduction(nn.Module):
    """The first principal components of the features at each position of a map; never trained.

    Args:
        features: D, channels of the feature map.
        components: d, number of components to keep.
        power: of the features, before the components are found. 0.5, their square root, makes large
            features weigh less.
    """

    mean: Tensor
    basis: Tensor

    def __init__(self, features: int, components: int, power: float = 1.0) -> None:
        super().__init__()
        self.power = power
        if components > features:
            raise InputError(f"--reduce {components}: the feature maps have {features} channels")
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("basis", torch.eye(features)[:components].clone())

    @torch.no_grad()
    def fit(self, maps: Iterable[Tensor]) -> None:
        """Find the components of the features at all positions.

        Args:
            maps: batches of feature maps [B, D, H, W].
        """
        device, features = self.mean.device, len(self.mean)
        total = torch.zeros(features, dtype=torch.float64, device=device)
        products = torch.zeros((features, features), dtype=torch.float64, device=device)
        positions = 0
        for part in maps:
            rows = signed_power(part.to(device), self.power).movedim(1, -1).reshape(-1, features)
            total += rows.sum(dim=0)
            products += rows.T @ rows
            positions += len(rows)
        mean = total / max(positions, 1)
        covariance = products / max(positions, 1) - torch.outer(mean, mean)
        _, vectors = torch.linalg.eigh(covariance.cpu())
        basis = vectors.flip(1).T[: len(self.basis)].to(device)  # the largest eigenvalue first
        largest = basis.gather(1, basis.abs().argmax(dim=1, keepdim=True))
        self.basis.copy_(
            basis * largest.sign()
        )  # makes the arbitrary sign of an eigenvector unique
        self.mean.copy_(mean)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to reduced maps [B, d, H, W]."""
        bias = -(self.basis @ self.mean)
        return nn.functional.conv2d(
            signed_power(maps, self.power), self.basis[:, :, None, None], bias
        )
