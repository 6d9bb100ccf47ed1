"""Methods by name. A new one is a file here and a line in ``METHODS``."""

from partlabel.methods.base import Method, Predict, Stage
from partlabel.methods.bce import AssumeNegative, Bce

__all__ = ["METHODS", "Method", "Predict", "Stage"]

METHODS: dict[str, type[Method]] = {
    "bce": Bce,
    "an": AssumeNegative,
}
