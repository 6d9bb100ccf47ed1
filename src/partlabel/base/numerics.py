"""What numbers a device can do."""

from torch import Tensor


def widest(tensor: Tensor) -> Tensor:
    """In double precision where the device has it, else in single precision."""
    try:
        return tensor.double()
    except TypeError:
        return tensor.float()
