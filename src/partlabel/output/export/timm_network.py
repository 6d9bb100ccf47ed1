"""A trained classifier as one network of timm, where it is one: a backbone with a linear head."""

from typing import Any

import timm
import torch
from torch import Tensor, nn

from partlabel.models import Backbone, Classifier, Reduction
from partlabel.models.backbones.networks import size_argument
from partlabel.models.heads import Branch, Ensemble, Linear

Layer = tuple[Tensor, Tensor]  # weight [C, D] and bias [C]

_PREFIXES = ("maps.network.", "network.")


def linear_layer(model: Classifier) -> Layer | None:
    """The layer that gives a model's logits from pooled features; None if there is no such layer.

    Principal components and ensembles of linear heads are linear too, and become one layer.
    """
    layer = _layer_of(model.head)
    return None if layer is None else _behind(model.backbone.reduction, layer)


def _layer_of(head: nn.Module) -> Layer | None:
    if isinstance(head, Linear) and head.power == 1:
        return head.classifier.weight.detach(), head.classifier.bias.detach()
    if isinstance(head, Branch):
        weights = head.weights.tolist()
        parts = [_layer_of(part) for part in head.heads]
        scaled = [
            None if p is None else (w * p[0], w * p[1]) for w, p in zip(weights, parts, strict=True)
        ]
        total = _sum(scaled)
        return None if total is None else _behind(head.reduction, total)
    if isinstance(head, Ensemble):
        return _sum([_layer_of(branch) for branch in head.branches])
    return None


def _sum(layers: list[Layer | None]) -> Layer | None:
    known = [layer for layer in layers if layer is not None]
    if len(known) < len(layers):
        return None
    return sum(layer[0] for layer in known), sum(layer[1] for layer in known)  # type: ignore[return-value]


def _behind(reduction: nn.Module, layer: Layer) -> Layer | None:
    """A layer on reduced features, as one on the features themselves."""
    if isinstance(reduction, Reduction) and reduction.power == 1 and reduction.own is None:
        weight = layer[0] @ reduction.basis
        return weight, layer[1] - weight @ reduction.mean
    return layer if isinstance(reduction, nn.Identity) else None


def as_timm(model: Classifier) -> nn.Module | None:
    """A timm network with the weights of a model; None if timm has no network like it.

    If the head is not linear, the network has no classifier, and gives pooled features.
    """
    backbone, layer = model.backbone, linear_layer(model)
    if len(backbone.parts) > 1 or backbone.name == "none":
        return None
    classes = 0 if layer is None else len(model.classes)
    with torch.random.fork_rng(devices=[]):
        network: Any = timm.create_model(
            backbone.name, num_classes=classes, **size_argument(backbone.name, backbone.size)
        )
    state = {**network.state_dict(), **_state_of(backbone, list(network.state_dict()))}
    if layer is not None:
        classifier = network.get_classifier()
        if not isinstance(classifier, nn.Linear):
            return None
        name = next(name for name, part in network.named_modules() if part is classifier)
        state |= {f"{name}.weight": layer[0], f"{name}.bias": layer[1]}
    names = set(network.state_dict())
    if set(state) != names:
        return None
    network.load_state_dict(state)
    return network.eval() if _is_same(network, model, linear=layer is not None) else None


def _state_of(backbone: Backbone, names: list[str]) -> dict[str, Tensor]:
    """The weights of a backbone by the names of its network.

    A part that is trained may have copies of frozen weights that it does not use; those of the
    frozen part count.
    """
    spellings = {spelling: name for name in names for spelling in _spellings(name)}
    lower, upper = (
        {_plain(name, spellings): value for name, value in part.state_dict().items()}
        for part in (backbone.lower, backbone.upper)
    )
    unused = {
        plain
        for name, parameter in backbone.upper.named_parameters()
        if not parameter.requires_grad and (plain := _plain(name, spellings)) in lower
    }
    return lower | {name: value for name, value in upper.items() if name not in unused}


def _spellings(name: str) -> list[str]:
    """The names that a weight may have in a part of a network that was split.

    >>> _spellings("blocks.4.conv.weight")
    ['blocks.4.conv.weight', 'blocks_4.conv.weight', 'blocks_4_conv.weight']
    """
    parts = name.split(".")
    return [
        ".".join(["_".join(parts[:number]), *parts[number:]]) for number in range(1, len(parts))
    ]


def _plain(name: str, spellings: dict[str, str]) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return spellings.get(name, name)


@torch.no_grad()
def _is_same(network: nn.Module, model: Classifier, *, linear: bool) -> bool:
    """Whether a network gives the logits of a model, or its pooled features, on random images."""
    backbone = model.backbone
    generator = torch.Generator().manual_seed(0)
    size = backbone.size
    images = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8, generator=generator)
    own: Tensor = network.eval()((images - backbone.mean) / backbone.std)
    if linear:
        wanted = model.eval()(images)
    else:
        wanted = backbone.upper(backbone.lower_maps(images)).mean(dim=(2, 3))
    return own.shape == wanted.shape and torch.allclose(own, wanted, rtol=1e-3, atol=1e-3)
