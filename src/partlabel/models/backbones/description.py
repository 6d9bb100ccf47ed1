"""What is to be known of a network before a training: pooling, sizes, maps, weights."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from partlabel.base.errors import InputError, some
from partlabel.base.late_import import LateImport
from partlabel.models.backbones.backbone import Backbone
from partlabel.models.backbones.networks import (
    check_name,
    check_size,
    config_of,
    default_size,
    native_size,
    why_not,
)
from partlabel.models.backbones.own_classifier import count_own_classes
from partlabel.models.backbones.packaged import PACKAGED, is_packaged

if TYPE_CHECKING:
    import timm
else:  # only networks for images need it, and it takes longer to import than torch
    timm = LateImport("timm")


@dataclass(frozen=True)
class Description:
    """A network in words, as pairs of what and how."""

    name: str
    facts: dict[str, str]

    def __str__(self) -> str:
        width = max(map(len, self.facts))
        lines = [f"  {what:<{width}}  {how}" for what, how in self.facts.items()]
        return "\n".join([self.name, *lines])


def describe(name: str, size: int | None = None) -> Description:
    """Describe a network.

    Args:
        name: of timm.
        size: image size in pixels for the shape of maps; None for the default.
    """
    check_name(name)
    size = default_size(name) if size is None else size
    check_size(name, size)
    with torch.random.fork_rng(devices=[]):
        backbone = Backbone(name, "none", "all", size)
    parameters = sum(parameter.numel() for parameter in backbone.parameters())
    height, width = backbone.grid
    positions = f"{height} x {width} positions, {backbone.channels} channels"
    mean, std = _numbers(backbone.mean), _numbers(backbone.std)
    return Description(
        name,
        {
            "parameters": f"{parameters / 1e6:.1f} million",
            "pooling": backbone.pooling,
            "sizes": _sizes(name),
            f"map at {size}": positions,
            "cache": f"{4 * backbone.channels / 1e3:.1f} KB per image pooled, "
            f"{2 * backbone.channels * height * width / 1e3:.0f} KB per image as maps",
            "--unfreeze last": _trained_part(name, size),
            "images": f"mean {mean}, std {std}, resized by {backbone.interpolation}",
            "weights": _weights(name),
            "own classes": _own_classes(name),
        },
    )


def _own_classes(name: str) -> str:
    number = count_own_classes(name)
    return f"{number:,}, which --own-classes adds to the features" if number else "none"


def _numbers(scale: Tensor) -> str:
    """A mean or standard deviation per channel; one number if all are equal."""
    values = [f"{float(value) / 255:.4g}" for value in scale.view(-1)]
    return values[0] if len(set(values)) == 1 else " ".join(values)


def _sizes(name: str) -> str:
    default, native = default_size(name), native_size(name)
    text = f"{default} by default, made for {native}"
    if not config_of(name).get("fixed_input_size"):
        return f"any; {text}"
    # a step of the smallest change that the network accepts
    steps = [step for step in (1, 2, 4, 7, 8, 14, 16, 32) if why_not(name, native + step) is None]
    if steps:
        return f"multiples of {steps[0]}; {text}"
    return f"only {native}" if native == default else f"{default} or {native}"


def _trained_part(name: str, size: int) -> str:
    try:
        with torch.random.fork_rng(devices=[]):
            backbone = Backbone(name, "none", "lower", size)
    except InputError as error:
        return f"not possible: {error}"
    trained = sum(parameter.numel() for parameter in backbone.trained_parameters())
    share = trained / sum(parameter.numel() for parameter in backbone.parameters())
    blocks = getattr(backbone.upper, "equal_blocks", None)
    part = (
        "what follows the last map of stride 16" if blocks is None else f"its last {blocks} blocks"
    )
    return f"trains {part}, {100 * share:.0f}% of the parameters"


def _weights(name: str) -> str:
    if is_packaged(name):
        return "imagenet is packaged and needs no download"
    base = name.partition(".")[0]
    tags = [tag for tag in timm.list_pretrained(f"{base}.*") if tag.partition(".")[0] == base]
    if not tags:
        return "none to download; use --weights FILE"
    default = name if "." in name else f"{base}.{config_of(name).get('tag', '')}"
    others = [tag for tag in tags if tag != default]
    return f"imagenet downloads {default}" + (f"; there are also {some(others)}" if others else "")


def matching(pattern: str) -> list[str]:
    """The networks of timm whose names match a pattern such as ``vit_small*``."""
    return sorted(timm.list_models(pattern))


def packaged() -> list[str]:
    """The networks whose ImageNet weights need no download."""
    return sorted(PACKAGED)
