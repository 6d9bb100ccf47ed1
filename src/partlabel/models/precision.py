"""The precision in which networks compute."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["32", "bf16", "16"]

DTYPES = {"bf16": torch.bfloat16, "16": torch.float16}


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context in which layers compute in a precision, where that is safe for them."""
    if precision == "32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])
