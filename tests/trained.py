"""A tiny model for tests."""

from partlabel.learning.methods import Method
from partlabel.models import Backbone, Classifier


def tiny_model(method: Method, classes: int, size: int = 64) -> Classifier:
    backbone = Backbone("test_efficientnet", "none", "nothing", size)
    head = method.refine(method.head(backbone.channels, classes), classes)
    return Classifier(backbone, head, [f"c{j}" for j in range(classes)])
