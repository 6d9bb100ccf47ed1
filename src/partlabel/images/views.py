"""The views of an image that a method trains on: clean, mirrored, randomly augmented."""

from collections.abc import Callable

import torch
from torch import Tensor

from partlabel.base import torchvision_shim  # noqa: F401  # before torchvision
from partlabel.base.randomness import key


def clean(picture: Tensor) -> Tensor:
    """The picture itself."""
    return picture


def flip(picture: Tensor) -> Tensor:
    """The picture, mirrored."""
    return picture.flip(-1)


def weak(picture: Tensor) -> Tensor:
    """The picture, mirrored in half of the cases."""
    return flip(picture) if torch.rand(()) < 0.5 else picture


def strong(picture: Tensor) -> Tensor:
    """RandAugment, then Cutout: a grey square of half the side at a random place."""
    from torchvision.transforms import v2

    changed: Tensor = v2.RandAugment()(weak(picture))
    size = picture.shape[-1]
    half = size // 4
    y, x = (int(torch.randint(size, ())) for _ in range(2))
    changed = changed.clone()
    changed[:, max(y - half, 0) : y + half, max(x - half, 0) : x + half] = 127
    return changed


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "clean": clean,
    "flip": flip,
    "weak": weak,
    "strong": strong,
}


def seed_generator(seed: int) -> None:
    """Seed torch's generators; what ``torch.manual_seed`` does, at a hundredth of its cost.

    That one formats a stack trace for each kind of accelerator that is not there.
    """
    torch.default_generator.manual_seed(seed)
    if torch.accelerator.is_available():
        torch.get_device_module().manual_seed_all(seed)


def view_of(picture: Tensor, view: str, *counter: object) -> Tensor:
    """A view of a picture; what is random in it depends on ``counter`` and on nothing else."""
    if view == "clean":
        return picture
    with torch.random.fork_rng(devices=[]):
        seed_generator(key("view", view, *counter))
        return VIEWS[view](picture)
