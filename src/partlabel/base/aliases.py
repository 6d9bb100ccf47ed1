"""Modules that can be imported by a shorter name than that of the file they lie in."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class AliasFinder(MetaPathFinder, Loader):
    """Makes ``import package.short`` give the very module that lies at ``package.room.short``.

    A module and its alias are one object, also for what lies below it, so that a class is never
    defined twice.

    Args:
        homes: the full name of a module by its alias.
    """

    def __init__(self, homes: dict[str, str]) -> None:
        self.homes = homes

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for an alias, or for a module below one; None for any other name."""
        return ModuleSpec(name, self) if self._home(name) is not None else None

    def _home(self, name: str) -> str | None:
        for alias, home in self.homes.items():
            if name == alias or name.startswith(alias + "."):
                return home + name.removeprefix(alias)
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Put the real module in the place of the new one."""
        home = self._home(module.__name__)
        assert home is not None
        sys.modules[module.__name__] = importlib.import_module(home)
