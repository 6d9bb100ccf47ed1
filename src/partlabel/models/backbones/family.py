"""Feature maps of any network, with the pooling that its family was trained with.

Networks end in different ways: maps with channels first or last, or a sequence of tokens with class
and register tokens before it. And they pool in different ways: the mean over positions, the class
token, or an attention layer, often followed by a norm or a layer.

Here every network gives one map [B, D, H, W], and the mean of this map over its positions is the
pooled vector of the family. Heads that take the mean therefore get exactly what the family's own
classifier gets, and heads that use positions get a map in the same space:

* The vector at a position is what the family would pool if all positions were equal to it.
* All vectors are shifted by one vector per image, so that their mean is the pooled one.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.base.numerics import at_least_single

Layout = Literal["channels first", "channels last", "tokens"]


@dataclass(frozen=True)
class Ending:
    """How a network ends.

    Args:
        layout: the order of dimensions of its features.
        prefix: number of class and register tokens before the tokens of positions.
        has_head: whether the family does more with features than to take their mean.
        pooling: the pooling in words.
    """

    layout: Layout
    prefix: int
    has_head: bool
    pooling: str

    @property
    def is_plain(self) -> bool:
        """Whether the features are a map already, and pooling is its mean."""
        return self.layout == "channels first" and not self.has_head


class FamilyMaps(nn.Module):
    """A network as a function of images [B, 3, S, S] to maps [B, D, H, W]; see above.

    Args:
        network: a timm network without a classifier.
        ending: how it ends.
    """

    def __init__(self, network: nn.Module, ending: Ending) -> None:
        super().__init__()
        self.network, self.ending = network, ending

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images [B, 3, S, S] to maps [B, D, H, W]."""
        network: Any = self.network
        features: Tensor = network.forward_features(images)
        maps = to_map(features, self.ending)
        if not self.ending.has_head:
            return maps
        pooled = at_least_single(network.forward_head(features, pre_logits=True))
        places = at_least_single(_pool_places(network, maps, self.ending))
        return places + (pooled - places.mean(dim=(2, 3)))[:, :, None, None]


def to_map(features: Tensor, ending: Ending) -> Tensor:
    """The features of positions as a map [B, D, H, W], in any layout."""
    if ending.layout == "channels first":
        return features
    if ending.layout == "channels last":
        return features.permute(0, 3, 1, 2)
    tokens = features[:, ending.prefix :]
    side = isqrt(tokens.shape[1])
    return tokens.transpose(1, 2).reshape(tokens.shape[0], -1, side, side)


def _pool_places(network: Any, maps: Tensor, ending: Ending) -> Tensor:
    """What the family pools from images [B, D, H, W] in which all positions are equal to one."""
    batch, channels, height, width = maps.shape
    places = maps.permute(0, 2, 3, 1).reshape(-1, channels)
    if ending.layout == "channels first":
        alone = places[:, :, None, None]
    elif ending.layout == "channels last":
        alone = places[:, None, None, :]
    else:
        alone = places[:, None, :].expand(-1, ending.prefix + 1, -1)
    pooled: Tensor = network.forward_head(alone, pre_logits=True)
    return pooled.reshape(batch, height, width, -1).permute(0, 3, 1, 2)


@torch.no_grad()
def find_ending(name: str, network: nn.Module, size: int) -> Ending:
    """Run a network in evaluation mode to see how it ends.

    Raises:
        InputError: it gives no features of positions.
    """
    network.eval()
    parameter = next(network.parameters())
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((1, 3, size, size), generator=generator).to(parameter) * 2 - 1
    whole: Any = network
    try:
        features = whole.forward_features(images.contiguous(memory_format=torch.channels_last))
    except Exception as error:  # networks raise almost any exception for images that are too small
        raise InputError(
            f"--size {size}: the backbone '{name}' cannot take images of this size ({error})"
        ) from error
    layout = _layout(name, network, features)
    prefix = _prefix_tokens(network, features) if layout == "tokens" else 0
    maps = to_map(features, Ending(layout, prefix, has_head=False, pooling=""))
    if maps.shape[2] != maps.shape[3]:
        raise _no_maps(name, features)
    has_head = _has_head(whole, features, maps, Ending(layout, prefix, True, ""))
    return Ending(layout, prefix, has_head, _in_words(network, layout, has_head))


def _no_maps(name: str, features: Any) -> InputError:
    shape = f"features of shape {list(features.shape)}" if isinstance(features, Tensor) else "lists"
    return InputError(
        f"the backbone '{name}' gives {shape}, not one feature per position of the image; use "
        "another network, such as resnet50, convnext_tiny or vit_small_patch14_dinov2"
    )


def _layout(name: str, network: nn.Module, features: Any) -> Layout:
    if not isinstance(features, Tensor) or features.ndim not in (3, 4):
        raise _no_maps(name, features)
    if features.ndim == 3:
        return "tokens"
    is_last = getattr(network, "output_fmt", "NCHW") == "NHWC" or (
        features.shape[1] == features.shape[2] != features.shape[3]
    )
    return "channels last" if is_last else "channels first"


def _prefix_tokens(network: nn.Module, features: Tensor) -> int:
    """Number of tokens that belong to no position; positions form a square."""
    length = features.shape[1]
    prefix = getattr(network, "num_prefix_tokens", None)
    return length - isqrt(length) ** 2 if prefix is None else int(prefix)


def _has_head(network: Any, features: Tensor, maps: Tensor, ending: Ending) -> bool:
    """Whether the family's vector differs from the mean of the features of positions."""
    try:
        pooled: Tensor = network.forward_head(features, pre_logits=True)
        places = _pool_places(network, maps, ending)
    except Exception:  # a head that needs several positions; the mean is used instead
        return False
    if pooled.ndim != 2 or places.shape[1] != pooled.shape[1]:
        return False
    mean = maps.mean(dim=(2, 3))
    return mean.shape != pooled.shape or not torch.allclose(
        mean, pooled, rtol=1e-3, atol=1e-4 * float(pooled.abs().max())
    )


_POOLINGS = {
    "token": "the class token",
    "map": "attention over all positions",
    "avg": "the mean over positions",
    "avgmax": "the mean and the maximum over positions",
    "max": "the maximum over positions",
}


def _in_words(network: nn.Module, layout: Layout, has_head: bool) -> str:
    if not has_head:
        return _POOLINGS["avg"]
    kind = getattr(network, "global_pool", "avg")
    text = _POOLINGS.get(kind if isinstance(kind, str) else "avg", _POOLINGS["avg"])
    own_layer = layout != "tokens" or kind == "avg"
    return f"{text}, then the family's own layer" if own_layer else text
