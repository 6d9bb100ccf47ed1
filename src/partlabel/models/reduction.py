"""Reduce the number of channels of feature maps by principal component analysis."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.models.own_classes import OwnClasses
from partlabel.models.powers import signed_power


class Reduction(nn.Module):
    """The first principal components of the features at each position of a map; never trained.

    Args:
        features: D, channels of the feature map.
        components: d, number of components to keep.
        power: of the features, before the components are found. 0.5, their square root, makes large
            features weigh less.
        own: adds the classes that the network was pretrained on, at each position, before the
            components are found; None for none.
    """

    mean: Tensor
    basis: Tensor

    def __init__(
        self, features: int, components: int, power: float = 1.0, own: OwnClasses | None = None
    ) -> None:
        super().__init__()
        self.power, self.own = power, own
        features += 0 if own is None else len(own.bias)
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
            rows = self._powers(part.to(device)).movedim(1, -1).reshape(-1, features)
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
        return nn.functional.conv2d(self._powers(maps), self.basis[:, :, None, None], bias)

    def _powers(self, maps: Tensor) -> Tensor:
        """What the components are found of."""
        if self.own is None:
            return signed_power(maps, self.power)
        added: Tensor = self.own(maps)
        return added
