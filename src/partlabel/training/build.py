"""From settings to a new model and its method."""

from typing import Any

import torch
from torch import nn

from partlabel.base.errors import InputError, one_of
from partlabel.base.randomness import key
from partlabel.learning.extensions import ChangesHead
from partlabel.learning.methods import METHODS, Method, OnLogits
from partlabel.models import Backbone, Classifier, make_backbone
from partlabel.models.backbones import add_own_classes
from partlabel.models.features.embeddings import GivenFeatures
from partlabel.models.heads import HEADS, WithEvidence, needs_maps
from partlabel.training.settings import Settings


def build(
    settings: Settings,
    classes: list[str],
    *,
    pretrained: bool,
    features: int | None = None,
    teachers: int = 0,
) -> tuple[Classifier, Method]:
    """A new model and its method.

    Args:
        pretrained: whether to load the weights of the backbone; if not, they are loaded later.
        features: the dimension of features that are given instead of images; None for images.
        teachers: number of other models whose scores are evidence.
    """
    method = METHODS[one_of("method", settings.method, METHODS)](**settings.options)
    backbone: Backbone
    if features is not None:
        backbone = GivenFeatures(features, settings.reduce, settings.power, settings.precision)
    else:
        backbone = make_backbone(
            settings.backbone,
            settings.weights if pretrained else "none",
            settings.frozen,
            settings.size,
            settings.reduce,
            settings.power,
            blocks=settings.unfreeze_blocks,
            precision=settings.precision,
            mirror=settings.mirror,
        )
    for part in backbone.parts:
        part.fixed_statistics = settings.fixed_statistics
    if settings.own_classes is not None:
        weights = settings.weights if pretrained else None
        add_own_classes(backbone, settings.own_classes, settings.power, weights)
    with torch.random.fork_rng():  # the same head for the same features, however they are computed
        torch.manual_seed(key(settings.seed, "head"))
        head = make_head(
            method, backbone.channels, len(classes), settings.head, settings.head_options
        )
    if features is not None:
        _refuse_maps(settings, method, head)
    if teachers:
        _refuse_teachers(settings, method)
        head = WithEvidence(head, backbone.channels, teachers, len(classes))
    return Classifier(backbone, head, classes), method


def _refuse_maps(settings: Settings, method: Method, head: nn.Module) -> None:
    """Raise an error for a method or a head that needs more of an image than one vector."""
    if "strong" in method.views:
        needs = f"the method '{settings.method}' compares views of images"
    elif needs_maps(head):
        own = f"the method '{settings.method}'"
        needs = f"the head of {own}" if settings.head is None else f"the head '{settings.head}'"
        needs += " looks at the places of an image"
    else:
        return
    raise InputError(
        f"{needs}, and features are one vector per image; train on images, or choose another "
        "method, such as bce or em, with --head linear"
    )


def make_head(
    method: Method,
    features: int,
    classes: int,
    name: str | None = None,
    options: dict[str, Any] | None = None,
) -> nn.Module:
    """The method's own head, or one by name (linear by default), with what the method adds."""
    changes = method if isinstance(method, ChangesHead) else None
    head = method.head(features, classes)
    if head is None:
        wanted = {} if changes is None else changes.head_options
        head = HEADS[name or "linear"](features, classes, **wanted | (options or {}))
    return head if changes is None else changes.refine(head, classes)


def _refuse_teachers(settings: Settings, method: Method) -> None:
    """Raise an error for a training whose logits cannot rest on the scores of teachers."""
    if settings.frozen != "all":
        raise InputError("--teacher needs frozen features: add --frozen, or use --features")
    if not isinstance(method, OnLogits) or type(method).head is not Method.head:
        able = [
            name
            for name, kind in METHODS.items()
            if issubclass(kind, OnLogits) and kind.head is Method.head
        ]
        raise InputError(
            f"--teacher works for methods that learn from logits alone, and '{settings.method}' "
            f"does not; these do: {', '.join(able)}"
        )
