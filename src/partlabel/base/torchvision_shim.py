"""Makes ``import torchvision`` work where its compiled operators cannot be loaded.

With a CPU build of torch and a CUDA build of torchvision, the import fails: torchvision's Python
code registers kernels for two operators that its library, which was not loaded, never declared.
Declaring them is enough. They belong to object detection, so this package never calls them. Import
this module before torchvision, and before timm, which imports torchvision.
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
    """Declare torchvision's operators if its compiled library cannot be loaded."""
    global _library
    spec = importlib.util.find_spec("torchvision")
    if _library is not None or spec is None or spec.origin is None:
        return
    for library in Path(spec.origin).parent.glob("_C*.so"):
        try:
            _ops.load_library(library)
        except OSError:
            continue
        return
    _library = _new_library("torchvision", "DEF")
    for name in _OPERATORS:
        _library.define(name + _SIGNATURE)


declare_missing_operators()
