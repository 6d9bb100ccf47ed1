"""From settings to a new model and its method."""

from typing import Any

from torch import nn

from partlabel.base.errors import one_of
from partlabel.learning.extensions import ChangesHead
from partlabel.learning.methods import METHODS, Method
from partlabel.models import Classifier, make_backbone
from partlabel.models.heads import HEADS
from partlabel.training.settings import Settings


def build(settings: Settings, classes: list[str], *, pretrained: bool) -> tuple[Classifier, Method]:
    """A new model and its method; without ``pretrained`` the weights are to be loaded."""
    method = METHODS[one_of("method", settings.method, METHODS)](**settings.options)
    weights = settings.weights if pretrained else "none"
    backbone = make_backbone(
        settings.backbone,
        weights,
        settings.frozen,
        settings.size,
        settings.reduce,
        blocks=settings.unfreeze_blocks,
        precision=settings.precision,
    )
    head = make_head(method, backbone.channels, len(classes), settings.head, settings.head_options)
    return Classifier(backbone, head, classes), method


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
