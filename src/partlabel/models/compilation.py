"""Compile the networks of a backbone with torch.compile."""

import torch
from torch import nn

from partlabel.base.errors import InputError
from partlabel.models.backbones import Backbone


def compile_backbone(backbone: Backbone) -> None:
    """Compile the frozen and the trained part of each network, in place.

    Names of weights stay the same. A first image is computed, so that a computer without a compiler
    is noticed here.
    """
    for network in backbone.parts:
        for part in (network.lower, network.upper):
            if not isinstance(part, nn.Identity):
                part.compile()
    images = torch.zeros((2, 3, backbone.size, backbone.size), dtype=torch.uint8)
    try:
        with torch.no_grad(), backbone.autocast():
            backbone.eval()(images.to(backbone.device))
    except Exception as error:  # compilers raise almost any exception
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise InputError(
            f"--compile: '{backbone.name}' cannot be compiled here ({reason}); leave the option out"
        ) from error
