"""Networks: backbones, heads, and classifiers that combine the two."""

from partlabel.base import torchvision_shim  # noqa: F401  # must be imported before timm
from partlabel.models import heads
from partlabel.models.backbones import Backbone, Frozen, make_backbone
from partlabel.models.classifier import Classifier
from partlabel.models.reduction import Reduction

__all__ = [
    "Backbone",
    "Classifier",
    "Frozen",
    "Reduction",
    "heads",
    "make_backbone",
]
