"""Short import names for modules that lie deeper in the package."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class AliasFinder(MetaPathFinder, Loader):
    """Makes ``import package.short`` return the module ``package.room.short``.

    A module and its alias are the same object, and so are their submodules. No class is defined
    twice.

    Args:
        full_names: the full name of a module by its alias.
    """

    def __init__(self, full_names: dict[str, str]) -> None:
        self.full_names = full_names

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for an alias or for a submodule of one; None for any other name."""
        return ModuleSpec(name, self) if self._full_name(name) is not None else None

    def _full_name(self, name: str) -> str | None:
        for alias, full_name in self.full_names.items():
            if name == alias or name.startswith(alias + "."):
                return full_name + name.removeprefix(alias)
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Replace the new, empty module by the real one."""
        full_name = self._full_name(module.__name__)
        assert full_name is not None
        sys.modules[module.__name__] = importlib.import_module(full_name)
