"""Networks of timm: their names, the image sizes that they can take, and how they are created."""

import contextlib
import difflib
import warnings
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from partlabel.base.choices import DEFAULT_BACKBONE
from partlabel.base.errors import InputError, PartlabelWarning, count, some
from partlabel.base.late_import import LateImport
from partlabel.models.backbones.packaged import is_packaged, load_packaged
from partlabel.models.backbones.weight_files import load_weights

if TYPE_CHECKING:
    import timm
else:  # only networks for images need it, and it takes longer to import than torch
    timm = LateImport("timm")

DEFAULT_SIZE = 224


def check_name(name: str) -> None:
    """Raise an error for a name that timm does not have."""
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(f"timm has no backbone '{name}'{hint}")
    base, _, tag = name.partition(".")
    tags = [each.partition(".")[2] for each in timm.list_pretrained(f"{base}.*")]
    if tag and tag not in tags:
        raise InputError(
            f"timm has no weights '{tag}' of {base}"
            + (f"; it has {some(tags)}" if any(tags) else "; leave out what follows the dot")
        )


def config_of(name: str) -> dict[str, Any]:
    """timm's configuration of a network: image size, mean, weights."""
    config = timm.get_pretrained_cfg(name)
    return {} if config is None else config.to_dict()  # type: ignore[no-untyped-call]


def input_config(network: nn.Module) -> dict[str, Any]:
    """How images are to be prepared for a network: mean, std, interpolation."""
    resolve: Any = timm.data
    return dict(resolve.resolve_model_data_config(network))


def native_size(name: str) -> int:
    """The image size in pixels that a network was made for."""
    return int(config_of(name).get("input_size", (3, DEFAULT_SIZE, DEFAULT_SIZE))[-1])


def size_argument(name: str, size: int) -> dict[str, Any]:
    """The arguments that make a network for an image size."""
    return {"img_size": size} if config_of(name).get("fixed_input_size") else {}


@lru_cache(maxsize=256)
def why_not(name: str, size: int) -> str | None:
    """The reason why a network cannot take images of a size; None if it can.

    The network is created and run without memory for its numbers, which is fast.
    """
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]), _quiet():
            network = timm.create_model(name, num_classes=0, **size_argument(name, size)).eval()
            patch = _patch_size(network)
            if size % patch:
                return f"the size must be a multiple of {patch}"
            with torch.no_grad():
                network(torch.empty((1, 3, size, size)))
    except Exception as error:  # networks raise almost any exception for a size they cannot take
        return (str(error) or type(error).__name__).splitlines()[0]
    return None


@contextlib.contextmanager
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _patch_size(network: nn.Module) -> int:
    """Width of a patch in pixels; 1 for a network without patches."""
    size = getattr(getattr(network, "patch_embed", None), "patch_size", 1)
    return int(max(size)) if isinstance(size, (tuple, list)) else int(size or 1)


def default_size(name: str) -> int:
    """The image size for training: 224, or the nearest that all networks of a name can take."""
    parts = name.split("+")
    if not all(timm.is_model(part) for part in parts):
        return DEFAULT_SIZE  # creating the network explains what is wrong
    candidates = [DEFAULT_SIZE, *_near_sizes(), *map(native_size, parts)]
    for size in candidates:
        if all(_can_take(part, size) for part in parts):
            return size
    return native_size(parts[0])


def _can_take(name: str, size: int) -> bool:
    """As :func:`why_not`, without a trial if the network adapts to any size."""
    adapts = not config_of(name).get("fixed_input_size")
    return (adapts and size >= 64) or why_not(name, size) is None


def _near_sizes() -> list[int]:
    """Other common sizes, the nearest to the default first."""
    sizes = [192, 256, 240, 208, 288, 160, 320, 128, 384, 448, 512, 518]
    return sorted(sizes, key=lambda size: abs(size - DEFAULT_SIZE))


def check_size(name: str, size: int) -> None:
    """Raise an error if a network cannot take images of a size."""
    if _can_take(name, size):
        return
    native, default = native_size(name), default_size(name)
    sizes = f"--size {native}" if native == default else f"--size {default} or --size {native}"
    raise InputError(
        f"--size {size}: the backbone '{name}' cannot take images of this size "
        f"({why_not(name, size)}); use {sizes}"
    )


def create(name: str, weights: str, size: int) -> nn.Module:
    """A network without a classifier, with its family's pooling.

    Args:
        name: of timm.
        weights: ``"none"``, ``"imagenet"``, or the path of a weight file.
        size: image size in pixels.
    """
    check_name(name)
    check_size(name, size)
    arguments: dict[str, Any] = {"num_classes": 0, **size_argument(name, size)}
    if weights == "imagenet" and is_packaged(name):
        network = timm.create_model(name, **arguments)
        network.load_state_dict(load_whole(name, weights, size).state_dict(), strict=False)
    elif weights == "imagenet":
        network = _download(name, arguments)
    else:
        network = timm.create_model(name, **arguments)
        if weights != "none":
            unused = load_weights(network, name, Path(weights))
            if unused:
                warnings.warn(
                    f"{weights}: {name} has no place for {count(len(unused), 'tensor')} of the "
                    f"file ({some(unused)})",
                    PartlabelWarning,
                    stacklevel=2,
                )
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def load_whole(name: str, weights: str, size: int) -> nn.Module:
    """A network with the classifier that it was pretrained with; an InputError without weights.

    The arguments are those of :func:`create`.
    """
    arguments = size_argument(name, size)
    if weights == "imagenet" and not is_packaged(name):
        return _download(name, arguments)
    whole = timm.create_model(name, **arguments)
    if weights == "imagenet":
        load_packaged(whole, name)
    else:
        load_weights(whole, name, Path(weights))
    return whole


def _download(name: str, arguments: dict[str, Any]) -> nn.Module:
    try:
        return timm.create_model(name, pretrained=True, **arguments)
    except Exception as error:  # a failed download can raise anything
        raise InputError(
            f"the ImageNet weights of '{name}' cannot be downloaded ({type(error).__name__}); "
            f"give a file with --weights FILE, or use {DEFAULT_BACKBONE}, which needs no download"
        ) from error
