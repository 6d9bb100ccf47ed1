"""A timm network, split into a frozen part and a trained part."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from partlabel.models.backbones.family import FamilyMaps, find_ending
from partlabel.models.backbones.networks import create, input_config
from partlabel.models.backbones.splitting import split
from partlabel.models.precision import Precision, autocast
from partlabel.models.reduction import Reduction

Frozen = Literal["nothing", "lower", "all"]


class Backbone(nn.Module):
    """A network that computes feature maps [B, D, H, W] of images [B, 3, S, S].

    Three modules are applied in turn. ``lower`` is frozen: it maps normalised images to maps that
    can be cached, and also keeps its batch statistics. ``reduction`` reduces the number of channels
    of these maps. ``upper`` is trained, and maps the result to features.

    The mean of a map over its positions is the vector that the family of the network pools.

    Args:
        name: a timm network that gives features of positions.
        weights: ``"none"``, ``"imagenet"``, or the path of a weight file (safetensors, or a state
            dict that torch can load without unpickling code).
        frozen: the part that keeps its weights: ``"nothing"``, ``"lower"`` (up to the last map of
            stride 16, or all but the last blocks), or ``"all"``.
        size: S, width and height of the images in pixels.
        reduce: number of principal components to keep of the features; None to keep the features
            as they are. Only with ``frozen="all"``.
        power: of the features, before they are reduced.
        blocks: with ``frozen="lower"``, number of last blocks to train, of a network whose blocks
            are equal; None for the default.
        precision: the precision of what is computed outside of the training steps.
        mirror: whether features are means over an image and its mirror image. Only with
            ``frozen="all"``.

    Attributes:
        name: of the network.
        channels: D
        grid: (H, W)
        pooling: the pooling of the family, in words.
        interpolation: how images are to be resized, in the words of timm.
        fixed_statistics: whether batch normalisation keeps its means and variances in training.
    """

    mean: Tensor
    std: Tensor
    fixed_statistics = False

    def __init__(
        self,
        name: str,
        weights: str,
        frozen: Frozen,
        size: int,
        reduce: int | None = None,
        power: float = 1.0,
        *,
        blocks: int | None = None,
        precision: Precision = "32",
        mirror: bool = False,
    ) -> None:
        super().__init__()
        network = create(name, weights, size)
        config = input_config(network)
        self.register_buffer("mean", torch.tensor(config["mean"]).view(1, 3, 1, 1) * 255, False)
        self.register_buffer("std", torch.tensor(config["std"]).view(1, 3, 1, 1) * 255, False)
        self.name, self.frozen, self.size, self.precision = name, frozen, size, precision
        self.interpolation, self.mirror = str(config["interpolation"]), mirror
        ending = find_ending(name, network, size)
        self.pooling = ending.pooling
        if ending.is_plain:
            network.reset_classifier(0, "")  # type: ignore[operator]
        whole = network if ending.is_plain else FamilyMaps(network, ending)
        self.lower: nn.Module = nn.Identity()
        self.upper: nn.Module = nn.Identity()
        if frozen == "all":
            self.lower = whole
        elif frozen == "nothing":
            self.upper = whole
        else:
            self.lower, self.upper = split(name, network, ending, size, blocks)
        self._freeze()
        self.channels, *self.grid = self._map_shape()
        self.reduction: nn.Module = nn.Identity()
        if reduce is not None:
            self.reduction = Reduction(self.channels, reduce, power)
            self.channels = reduce
        self.reduction.eval()

    def _freeze(self) -> None:
        for parameter in self.lower.parameters():
            parameter.requires_grad_(False)
        self.lower.eval()
        self._trained = {name for name, p in self.upper.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def _map_shape(self) -> list[int]:
        """[D, H, W]"""
        self.eval()
        images = torch.zeros((1, 3, self.size, self.size), dtype=torch.uint8)
        return list(self.upper(self.lower_maps(images)).shape[1:])

    @property
    def parts(self) -> "list[Backbone]":
        """The networks whose frozen maps are cached, each on its own."""
        return [self]

    def train(self, mode: bool = True) -> "Backbone":
        """Set the mode of the trained part. The frozen part stays in evaluation mode."""
        self.training = mode
        self.upper.train(mode)
        if self.fixed_statistics:
            for module in self.upper.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def autocast(self) -> AbstractContextManager[object]:
        """A context in which the network computes in its precision."""
        return autocast(self.precision, self.device)

    @property
    def device(self) -> torch.device:
        """The device that the network is on."""
        return next(self.buffers()).device

    def lower_maps(self, images: Tensor) -> Tensor:
        """The maps of the frozen part, which can be cached.

        Args:
            images: [B, 3, S, S] uint8
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.frozen == "nothing"):
            in_layout = images.contiguous(memory_format=torch.channels_last)  # while one byte each
            normalised = (in_layout - self.mean).div_(self.std)
            if not self.mirror:
                return self._lower(normalised)
            return (self._lower(normalised) + self._lower(normalised.flip(-1)).flip(-1)) / 2

    def _lower(self, normalised: Tensor) -> Tensor:
        maps: Tensor = self.lower(normalised.contiguous(memory_format=torch.channels_last))
        return maps

    def forward(self, inputs: Tensor) -> Tensor:
        """Feature maps [B, D, H, W].

        Args:
            inputs: images [B, 3, S, S] (uint8), or reduced maps of the frozen part (float).
        """
        if inputs.dtype == torch.uint8:
            inputs = self.reduction(self.lower_maps(inputs))
        features: Tensor = self.upper(inputs)
        return features

    def trained_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that training may change."""
        for name, parameter in self.upper.named_parameters():
            if name in self._trained:
                yield parameter

    def frozen_state(self) -> dict[str, Tensor]:
        """The weights of the frozen part and of the reduction."""
        return _states(self, ("lower", "reduction"))

    def trained_state(self) -> dict[str, Tensor]:
        """The weights of the trained part."""
        return _states(self, ("upper",))


def _states(backbone: Backbone, parts: tuple[str, ...]) -> dict[str, Tensor]:
    return {
        f"{part}.{name}": value
        for part in parts
        for name, value in getattr(backbone, part).state_dict().items()
    }
