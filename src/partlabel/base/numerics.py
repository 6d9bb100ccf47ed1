"""The number types that a device supports."""

from torch import Tensor


def widest(tensor: Tensor) -> Tensor:
    """The tensor in double precision if the device has it, else in single precision."""
    try:
        return tensor.double()
    except TypeError:
        return tensor.float()


def at_least_single(tensor: Tensor) -> Tensor:
    """The tensor in single precision if it has less; double precision stays."""
    return tensor.float() if tensor.element_size() < 4 else tensor
