"""How long a training of the backbone takes, from the number of its operations."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from partlabel.base.errors import count
from partlabel.models import Backbone, make_backbone
from partlabel.training.settings import Settings

_BOTH_WAYS = 3  # times as many operations as forwards: gradients need two more each
_SECONDS = 2.5e-11  # of one processor core, per operation


def describe_work(settings: Settings, images: int, epochs: int) -> str:
    """What is trained, for how long; an error if this backbone cannot be trained so.

    Args:
        settings: ``frozen`` says which part of the backbone is not trained.
        images: that are trained on, at most.
    """
    with torch.random.fork_rng(devices=[]):
        backbone = make_backbone(
            settings.backbone, "none", settings.frozen, settings.size, precision=settings.precision
        )
    seconds = _SECONDS * _BOTH_WAYS * operations(backbone) * images * epochs
    part = "the last stage" if settings.frozen == "lower" else "all"
    return (
        f"{part} of the backbone is trained for {count(epochs, 'epoch')}, about "
        f"{max(1, round(seconds / 60)):,} min on one processor core"
    )


def operations(backbone: Backbone) -> int:
    """The number of operations that the trained part needs for an image, forwards."""
    images = torch.zeros((1, 3, backbone.size, backbone.size), dtype=torch.uint8)
    backbone.eval()
    with torch.no_grad():
        inputs = images if backbone.frozen == "nothing" else backbone.lower_maps(images)
        with FlopCounterMode(display=False) as counter:
            backbone(inputs)
    return int(counter.get_total_flops())
