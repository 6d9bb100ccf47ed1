"""The views of an image that a method trains on: clean, mirrored, weakly or strongly augmented."""

from collections.abc import Callable

import torch
from torch import Tensor

from partlabel.base import torchvision_shim  # noqa: F401  # must come before torchvision
from partlabel.base.randomness import key


def clean(picture: Tensor) -> Tensor:
    """The image unchanged."""
    return picture


def flip(picture: Tensor) -> Tensor:
    """The image mirrored left to right."""
    return picture.flip(-1)


def weak(picture: Tensor) -> Tensor:
    """The image mirrored with probability 1/2."""
    return flip(picture) if torch.rand(()) < 0.5 else picture


def strong(picture: Tensor) -> Tensor:
    """RandAugment, then Cutout: a grey square, half as wide as the image, at a random position."""
    from torchvision.transforms import v2

    augmented: Tensor = v2.RandAugment()(weak(picture))
    size = picture.shape[-1]
    half_side = size // 4
    y, x = (int(torch.randint(size, ())) for _ in range(2))
    rows, columns = (slice(max(centre - half_side, 0), centre + half_side) for centre in (y, x))
    augmented = augmented.clone()
    augmented[:, rows, columns] = 127
    return augmented


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "clean": clean,
    "flip": flip,
    "weak": weak,
    "strong": strong,
}


def seed_generator(seed: int) -> None:
    """Seed torch's generators like ``torch.manual_seed``, at a hundredth of its cost.

    ``torch.manual_seed`` formats a stack trace for each kind of accelerator that is missing.
    """
    torch.default_generator.manual_seed(seed)
    if torch.accelerator.is_available():
        torch.get_device_module().manual_seed_all(seed)


def view_of(picture: Tensor, view: str, *counter: object) -> Tensor:
    """A view of an image; its random choices depend only on ``view`` and ``counter``."""
    if view == "clean":
        return picture
    with torch.random.fork_rng(devices=[]):
        seed_generator(key("view", view, *counter))
        return VIEWS[view](picture)
