"""Feature maps with fewer channels: their principal components."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError


class Reduction(nn.Module):
    """The first principal components of the features at each place; never trained.

    Args:
        features: D, channels of the feature map.
        components: how many are left.
    """

    mean: Tensor
    basis: Tensor

    def __init__(self, features: int, components: int) -> None:
        super().__init__()
        if components > features:
            raise InputError(f"--reduce {components}: the feature maps have {features} channels")
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("basis", torch.eye(features)[:components].clone())

    @torch.no_grad()
    def fit(self, maps: Iterable[Tensor]) -> None:
        """Find the components of these maps [B, D, H, W], of all places alike."""
        device, features = self.mean.device, len(self.mean)
        total = torch.zeros(features, dtype=torch.float64, device=device)
        products = torch.zeros((features, features), dtype=torch.float64, device=device)
        places = 0
        for part in maps:
            rows = part.to(device).movedim(1, -1).reshape(-1, features)
            total += rows.sum(dim=0)
            products += rows.T @ rows
            places += len(rows)
        mean = total / max(places, 1)
        covariance = products / max(places, 1) - torch.outer(mean, mean)
        _, vectors = torch.linalg.eigh(covariance.cpu())
        basis = vectors.flip(1).T[: len(self.basis)].to(device)  # the largest first
        largest = basis.gather(1, basis.abs().argmax(dim=1, keepdim=True))
        self.basis.copy_(basis * largest.sign())  # an eigenvector has no sign of its own
        self.mean.copy_(mean)

    def forward(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, d, H, W]."""
        bias = -(self.basis @ self.mean)
        return nn.functional.conv2d(maps, self.basis[:, :, None, None], bias)
