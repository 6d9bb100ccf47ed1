"""A tiny model for tests."""

from partlabel.learning.methods import Method
from partlabel.models import Backbone, Classifier
from partlabel.training.build import make_head


def tiny_model(method: Method, classes: int, size: int = 64) -> Classifier:
    """An untrained model with the head of a method."""
    backbone = Backbone("test_efficientnet", "none", "nothing", size)
    head = make_head(method, backbone.channels, classes)
    return Classifier(backbone, head, [f"c{j}" for j in range(classes)])
