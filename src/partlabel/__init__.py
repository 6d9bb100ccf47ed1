"""Multi-label image classification when most labels are unknown.

>>> import partlabel
>>> table = partlabel.LabelTable(["a.jpg"], ["cat", "dog"], [[partlabel.PRESENT, 0]])
>>> partlabel.simulate.single_positive(table, seed=0).known
0.5
"""

import os
from pathlib import Path
from typing import Any

from partlabel.base.public_names import PublicNames
from partlabel.version import VERSION

if os.name != "posix":
    raise ImportError(
        "partlabel needs the file locks and signals of Unix: it runs on Linux and macOS, and on "
        "Windows in the Windows Subsystem for Linux"
    )

# The public names are listed in __init__.pyi alone, for type checkers and for this module. Nothing
# is imported before it is used, so that the command line can answer without torch.
_names = PublicNames(__name__, Path(__file__).with_suffix(".pyi"))
__all__ = ["__version__", *_names]
__version__ = VERSION


def __dir__() -> list[str]:
    """The public names, for completion in notebooks."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    return _names.get(name)
