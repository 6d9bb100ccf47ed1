"""Multi-label image classification when most labels are unknown.

>>> import partlabel
>>> table = partlabel.LabelTable(["a.jpg"], ["cat", "dog"], [[partlabel.PRESENT, 0]])
>>> partlabel.simulate.single_positive(table, seed=0).known
0.5
"""

import importlib
from typing import TYPE_CHECKING, Any

from partlabel.version import VERSION

if TYPE_CHECKING:
    from partlabel import formats, inspection, labels, losses, methods, metrics, scenes, simulate
    from partlabel.formats import read_labels, write_labels
    from partlabel.labels import ABSENT, PRESENT, UNKNOWN, LabelTable
    from partlabel.models import heads
    from partlabel.run import load
    from partlabel.training import train

__version__ = VERSION

__all__ = [
    "ABSENT",
    "PRESENT",
    "UNKNOWN",
    "LabelTable",
    "__version__",
    "formats",
    "heads",
    "inspection",
    "labels",
    "load",
    "losses",
    "methods",
    "metrics",
    "read_labels",
    "scenes",
    "simulate",
    "train",
    "write_labels",
]

_HOMES = {
    **dict.fromkeys(("ABSENT", "PRESENT", "UNKNOWN", "LabelTable"), "partlabel.labels"),
    **dict.fromkeys(("read_labels", "write_labels"), "partlabel.formats"),
    "heads": "partlabel.models",
    "load": "partlabel.run",
    "train": "partlabel.training",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: the command line answers without torch."""
    if name not in __all__:
        raise AttributeError(f"module 'partlabel' has no attribute '{name}'")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    return importlib.import_module(f"partlabel.{name}")
