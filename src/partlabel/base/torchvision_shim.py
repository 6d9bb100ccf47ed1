"""Makes ``import torchvision`` work where its compiled operators cannot be loaded.

On a machine with a CPU build of torch and a CUDA build of torchvision, the import fails because
torchvision's Python registers kernels for two operators that its library never declared. Declaring
them is enough: nothing here detects objects, so they are never called. Import this before
torchvision, and before timm, which imports it.
"""

import importlib.util
from pathlib import Path
from typing import Any

import torch

_ops: Any = torch.ops
_new_library: Any = torch.library.Library
_OPERATORS = ("nms", "qnms")
_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_library: Any = None


def declare_missing_operators() -> None:
    """Declare torchvision's operators, if its own library cannot be loaded."""
    global _library
    found = importlib.util.find_spec("torchvision")
    if _library is not None or found is None or found.origin is None:
        return
    for library in Path(found.origin).parent.glob("_C*.so"):
        try:
            _ops.load_library(library)
        except OSError:
            continue
        return
    _library = _new_library("torchvision", "DEF")
    for name in _OPERATORS:
        _library.define(name + _SIGNATURE)


declare_missing_operators()
