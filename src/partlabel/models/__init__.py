"""The networks: backbones, heads, and the two together."""

from partlabel.base import torchvision_shim  # noqa: F401  # before timm, which the next lines import
from partlabel.models import heads
from partlabel.models.backbone import Backbone, Frozen
from partlabel.models.classifier import Classifier
from partlabel.models.reduction import Reduction
from partlabel.models.weights import DEFAULT_BACKBONE

__all__ = ["DEFAULT_BACKBONE", "Backbone", "Classifier", "Frozen", "Reduction", "heads"]
