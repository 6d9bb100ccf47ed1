"""Powers of features, which make large features weigh less."""

from torch import Tensor

from partlabel.base.numerics import at_least_single

_SMALLEST = 1e-8  # of a feature, below which its power is proportional to it


def signed_power(features: Tensor, power: float) -> Tensor:
    """The power of the size of each feature, with its sign.

    >>> import torch
    >>> signed_power(torch.tensor([4.0, 0.0, -0.25]), 0.5)
    tensor([ 2.0000,  0.0000, -0.5000])
    """
    return features if power == 1 else features * power_gain(features, power)


def power_gain(features: Tensor, power: float) -> Tensor:
    """What each feature is multiplied by to get its power."""
    # half precision has no number as small as the smallest, so that 0 would become NaN
    return at_least_single(features).abs().clamp(min=_SMALLEST) ** (power - 1)
