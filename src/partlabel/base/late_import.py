"""Modules that are imported when they are first used, because importing them takes long."""

from importlib import import_module
from typing import Any


class LateImport:
    """Stands for a module: what is asked of it is asked of the module, which is then imported.

    >>> LateImport("math").floor(1.5)
    1
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
