"""Multi-label image classification when most labels are unknown.

>>> import partlabel
>>> table = partlabel.LabelTable(["a.jpg"], ["cat", "dog"], [[partlabel.PRESENT, 0]])
>>> partlabel.simulate.single_positive(table, seed=0).known
0.5
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from partlabel.base.aliases import AliasFinder
from partlabel.version import VERSION

if os.name != "posix":
    raise ImportError(
        "partlabel needs the file locks and signals of Unix: it runs on Linux and macOS, and on "
        "Windows in the Windows Subsystem for Linux"
    )

if TYPE_CHECKING:
    from partlabel import labels, metrics
    from partlabel.api import (
        bench,
        complete,
        embed,
        evaluate,
        export,
        fill,
        load,
        predict,
        report,
        suggest,
        train,
    )
    from partlabel.labels import (
        ABSENT,
        PRESENT,
        UNKNOWN,
        LabelTable,
        formats,
        inspection,
        scenes,
        simulate,
    )
    from partlabel.labels.formats import read_labels, write_labels
    from partlabel.learning import losses, methods, similarity
    from partlabel.models import heads

__version__ = VERSION

__all__ = [
    "ABSENT",
    "PRESENT",
    "UNKNOWN",
    "LabelTable",
    "__version__",
    "bench",
    "complete",
    "embed",
    "evaluate",
    "export",
    "fill",
    "formats",
    "heads",
    "inspection",
    "labels",
    "load",
    "losses",
    "methods",
    "metrics",
    "plan",
    "predict",
    "read_labels",
    "report",
    "scenes",
    "similarity",
    "simulate",
    "suggest",
    "train",
    "write_labels",
]

# The public names, and where they are defined. Nothing is imported before it is used, so that the
# command line can answer without torch.
_ATTRIBUTES = {
    **dict.fromkeys(("ABSENT", "PRESENT", "UNKNOWN", "LabelTable"), "partlabel.labels"),
    **dict.fromkeys(("read_labels", "write_labels"), "partlabel.labels.formats"),
    **dict.fromkeys(
        (
            "bench",
            "complete",
            "embed",
            "evaluate",
            "export",
            "fill",
            "load",
            "plan",
            "predict",
            "report",
            "suggest",
            "train",
        ),
        "partlabel.api",
    ),
}
_MODULES = {
    "formats": "partlabel.labels.formats",
    "heads": "partlabel.models.heads",
    "inspection": "partlabel.labels.inspection",
    "losses": "partlabel.learning.losses",
    "methods": "partlabel.learning.methods",
    "scenes": "partlabel.labels.scenes",
    "similarity": "partlabel.learning.similarity",
    "simulate": "partlabel.labels.simulate",
}
sys.meta_path.insert(0, AliasFinder({f"partlabel.{name}": at for name, at in _MODULES.items()}))


def __dir__() -> list[str]:
    """The public names, for completion in notebooks."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _ATTRIBUTES:
        return getattr(importlib.import_module(_ATTRIBUTES[name]), name)
    if name in __all__:
        return importlib.import_module(f"partlabel.{name}")
    raise AttributeError(f"module 'partlabel' has no attribute '{name}'")
