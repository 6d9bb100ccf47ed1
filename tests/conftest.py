"""Before any test module imports timm or torchvision."""

from partlabel import torchvision_shim  # noqa: F401
