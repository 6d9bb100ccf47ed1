"""Networks: backbones, heads, and classifiers that combine the two."""

from partlabel.base import torchvision_shim  # noqa: F401  # must be imported before timm
from partlabel.models import heads
from partlabel.models.backbone import Backbone, Frozen
from partlabel.models.classifier import Classifier
from partlabel.models.reduction import Reduction
from partlabel.models.weights import DEFAULT_BACKBONE

__all__ = ["DEFAULT_BACKBONE", "Backbone", "Classifier", "Frozen", "Reduction", "heads"]
