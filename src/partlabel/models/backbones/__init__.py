"""Backbones: networks of timm that compute feature maps."""

from partlabel.models.backbones.backbone import Backbone, Frozen
from partlabel.models.backbones.joined import JoinedBackbone, join
from partlabel.models.backbones.networks import default_size
from partlabel.models.backbones.own_classifier import (
    add_own_classes,
    count_own_classes,
    own_classifier,
)
from partlabel.models.backbones.packaged import PACKAGED
from partlabel.models.precision import Precision

__all__ = [
    "PACKAGED",
    "Backbone",
    "Frozen",
    "JoinedBackbone",
    "add_own_classes",
    "count_own_classes",
    "default_size",
    "join",
    "make_backbone",
    "own_classifier",
]


def make_backbone(
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
) -> Backbone:
    """A backbone of one network, or of several with ``+`` between their names.

    The arguments are those of :class:`Backbone`.
    """
    if "+" in name:
        return JoinedBackbone(
            name, weights, frozen, size, reduce, power, precision=precision, mirror=mirror
        )
    return Backbone(
        name,
        weights,
        frozen,
        size,
        reduce,
        power,
        blocks=blocks,
        precision=precision,
        mirror=mirror,
    )
