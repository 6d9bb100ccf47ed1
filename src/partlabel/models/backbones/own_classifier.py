"""The classifier that a network was pretrained with."""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from partlabel.base.errors import InputError, warn
from partlabel.base.late_import import LateImport
from partlabel.models.backbones.backbone import Backbone
from partlabel.models.backbones.networks import config_of, load_whole
from partlabel.models.own_classes import OwnClasses
from partlabel.models.reduction import Reduction

if TYPE_CHECKING:
    import timm
else:  # only networks for images need it, and it takes longer to import than torch
    timm = LateImport("timm")

_IMAGENET = 1000  # classes; those of ImageNet-21k would be more than the features
_SAME = 1e-3  # largest difference of two ways to the same logits


def count_own_classes(name: str) -> int:
    """Number of the classes that a network was pretrained on; 0 if they cannot be used.

    A network that was pretrained on images with texts (CLIP) has no classes. timm counts the
    dimensions of its embedding as such, 512 for example, but no probability belongs to them.
    """
    if "+" in name or not timm.is_model(name):
        return 0
    return _IMAGENET if config_of(name).get("num_classes") == _IMAGENET else 0


def own_classifier(backbone: Backbone, weights: str) -> nn.Linear | None:
    """A network's own classifier of pooled features; None if it has none that can be used.

    Args:
        backbone: one network, all of it frozen.
        weights: those of the backbone: ``"none"``, ``"imagenet"``, or a weight file.
    """
    number = count_own_classes(backbone.name)
    if weights == "none" or not number or backbone.frozen != "all":
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            whole: Any = load_whole(backbone.name, weights, backbone.size)
    except InputError as error:
        if weights == "imagenet":  # a weight file may well have no classifier, but these have one
            warn(f"the classes that '{backbone.name}' was pretrained on are not used: {error}")
        return None
    layer = whole.get_classifier()
    is_linear = isinstance(layer, nn.Linear) and layer.bias is not None
    if not is_linear or layer.out_features != number:
        return None
    return layer if _is_last(layer, whole, backbone) else None


@torch.no_grad()
def _is_last(layer: nn.Linear, whole: nn.Module, backbone: Backbone) -> bool:
    """Whether the classifier takes exactly the pooled features, seen on an image of noise."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (1, 3, backbone.size, backbone.size), generator=generator)
    image = noise.to(backbone.device, torch.uint8)
    normalised = (image - backbone.mean) / backbone.std
    means = backbone.lower(normalised).mean(dim=(2, 3))
    if means.shape[1] != layer.in_features:
        return False
    # on the device of the backbone, since others round in another way
    whole.to(backbone.device).eval()
    logits, found = whole(normalised), layer(means)
    whole.cpu()
    return bool((found - logits).abs().max() <= _SAME * logits.abs().max().clamp(min=1))


def add_own_classes(backbone: Backbone, weight: float, power: float, weights: str | None) -> None:
    """Let a backbone add the probabilities of its own classes to its features.

    If its features are reduced, the classes are added at each position before.

    Args:
        backbone: one network, all of it frozen.
        weight, power: see :class:`OwnClasses`.
        weights: as for :func:`own_classifier`; None if the classifier is to be loaded later.
    """
    number, reduction = count_own_classes(backbone.name), backbone.reduction
    layer = None if weights is None else own_classifier(backbone, weights)
    if not number or (layer is None and weights is not None):
        raise InputError(
            f"--own-classes: the backbone '{backbone.name}' with these weights has no classifier "
            "for classes of its own that could be used"
        )
    at_positions = isinstance(reduction, Reduction)
    features = len(reduction.mean) if isinstance(reduction, Reduction) else backbone.channels
    own = OwnClasses(features, number, weight, power, at_positions=at_positions)
    if layer is not None:
        own.use(layer)
    if isinstance(reduction, Reduction):
        backbone.reduction = Reduction(features, backbone.channels, power, own).eval()
    else:
        backbone.reduction = own.eval()
        backbone.channels += number
