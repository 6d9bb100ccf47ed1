"""A timm network, split into a frozen part and a trained part."""

import difflib
from pathlib import Path
from typing import Any, Literal

import timm
import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.passes.split_module import split_module

from partlabel.base.errors import InputError
from partlabel.models.reduction import Reduction
from partlabel.models.weights import DEFAULT_BACKBONE, load_packaged

Frozen = Literal["nothing", "lower", "all"]


class Backbone(nn.Module):
    """A network that computes feature maps [B, D, H, W] of images [B, 3, S, S].

    Three modules are applied in turn. ``lower`` is frozen: it maps normalised images to maps that
    can be cached, and also keeps its batch statistics. ``reduction`` reduces the number of channels
    of these maps. ``upper`` is trained, and maps the result to features.

    Args:
        name: a timm network that ends in a feature map.
        weights: ``"none"``, ``"imagenet"``, or the path of a weight file (safetensors, or a state
            dict that torch can load without unpickling code).
        frozen: the part that keeps its weights: ``"nothing"``, ``"lower"`` (up to the last map of
            stride 16), or ``"all"``.
        size: S, width and height of the images in pixels.
        reduce: number of principal components to keep of the features; None to keep the features
            as they are. Only with ``frozen="all"``.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, name: str, weights: str, frozen: Frozen, size: int, reduce: int | None = None
    ) -> None:
        super().__init__()
        network = _create(name, weights)
        config: dict[str, Any] = network.pretrained_cfg  # type: ignore[assignment]
        self.register_buffer("mean", torch.tensor(config["mean"]).view(1, 3, 1, 1) * 255, False)
        self.register_buffer("std", torch.tensor(config["std"]).view(1, 3, 1, 1) * 255, False)
        self.frozen, self.size = frozen, size
        self.lower: nn.Module = nn.Identity()
        self.upper: nn.Module = nn.Identity()
        if frozen == "all":
            self.lower = network
        elif frozen == "nothing":
            self.upper = network
        else:
            self.lower, self.upper = _split(name, network, size)
        for parameter in self.lower.parameters():
            parameter.requires_grad_(False)
        self.lower.eval()
        self.reduction: nn.Module = nn.Identity()
        self.channels = self._count_channels(name)
        if reduce is not None:
            self.reduction = Reduction(self.channels, reduce)
            self.channels = reduce
        self.reduction.eval()

    def _count_channels(self, name: str) -> int:
        """Run the network once to find D; raises an error if it does not give a feature map."""
        self.eval()
        with torch.no_grad():
            maps = self(torch.zeros((1, 3, self.size, self.size), dtype=torch.uint8))
        if maps.ndim != 4 or maps.shape[2] != maps.shape[3]:
            raise InputError(
                f"the backbone '{name}' gives features of shape {list(maps.shape)}, not a feature "
                "map; use a convolutional network, such as resnet50 or convnext_tiny"
            )
        return int(maps.shape[1])

    def train(self, mode: bool = True) -> "Backbone":
        """Set the mode of the trained part. The frozen part stays in evaluation mode."""
        self.training = mode
        self.upper.train(mode)
        return self

    def lower_maps(self, images: Tensor) -> Tensor:
        """The maps of the frozen part, which can be cached.

        Args:
            images: [B, 3, S, S] uint8
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.frozen == "nothing"):
            normalised = (images - self.mean) / self.std
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

    def frozen_state(self) -> dict[str, Tensor]:
        """The weights of the frozen part and of the reduction."""
        parts = {"lower.": self.lower, "reduction.": self.reduction}
        return {
            prefix + name: value
            for prefix, part in parts.items()
            for name, value in part.state_dict().items()
        }


def _create(name: str, weights: str) -> nn.Module:
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(f"timm has no backbone '{name}'{hint}")
    without_head: Any = {"num_classes": 0, "global_pool": ""}
    if weights == "imagenet" and name == DEFAULT_BACKBONE:
        whole = timm.create_model(name)
        load_packaged(whole)
        network = timm.create_model(name, **without_head)
        network.load_state_dict(whole.state_dict(), strict=False)
    elif weights == "imagenet":
        try:
            network = timm.create_model(name, pretrained=True, **without_head)
        except Exception as error:  # a failed download can raise anything
            raise InputError(
                f"the ImageNet weights of '{name}' cannot be downloaded ({type(error).__name__}); "
                f"give a file with --weights FILE, or use {DEFAULT_BACKBONE}, which needs no "
                "download"
            ) from error
    else:
        network = timm.create_model(name, **without_head)
        if weights != "none":
            _load_file(network, name, Path(weights))
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _load_file(network: nn.Module, name: str, path: Path) -> None:
    if not path.is_file():
        raise InputError(f"--weights {path}: there is no such file (give a file, none or imagenet)")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        result = network.load_state_dict(state, strict=False)
    except Exception as error:  # a file of an unknown kind can raise anything
        raise InputError(f"{path}: not weights that can be loaded safely ({error})") from error
    if result.missing_keys:
        raise InputError(f"{path}: not the weights of {name}: {result.missing_keys[0]} is missing")


class _BlockTracer(fx.Tracer):
    """Traces a network as a chain of blocks: it only enters plain containers."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not isinstance(m, (nn.Sequential, nn.ModuleList))


def _split(name: str, network: nn.Module, size: int) -> tuple[nn.Module, nn.Module]:
    """Split a network after its last map of stride 16 on which all later layers depend.

    Returns:
        The part up to this map, and the part after it.
    """
    network.eval()
    message = f"the backbone '{name}' has no single map of stride 16 to split at; train all of it"
    try:
        whole = fx.GraphModule(network, _BlockTracer().trace(network))
        ShapeProp(whole).propagate(torch.zeros((1, 3, size, size)))
    except Exception as error:  # tracing a network with control flow can raise anything
        raise InputError(f"{message} ({error})") from error
    nodes = list(whole.graph.nodes)
    position = {node: number for number, node in enumerate(nodes)}
    cut = None
    for number, node in enumerate(nodes[:-1]):
        shape: tuple[int, ...] = getattr(node.meta.get("tensor_meta"), "shape", ())
        bypassed = any(position[user] > number for early in nodes[:number] for user in early.users)
        if len(shape) == 4 and shape[-1] == -(-size // 16) and not bypassed:
            cut = number
    if cut is None:
        raise InputError(message)
    parts = split_module(whole, network, lambda node: int(position[node] > cut))
    lower, upper = parts.submod_0, parts.submod_1
    assert isinstance(lower, nn.Module)
    assert isinstance(upper, nn.Module)
    return lower, upper
