"""Public names of a package that are listed in its stub, and imported when they are first used."""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from partlabel.base.aliases import AliasFinder


class PublicNames:
    """The names that a stub imports: ``from package.room import name as name``.

    They become attributes of the package. A name of a module can also be imported:
    ``import package.name``.

    Args:
        package: the name of the package.
        stub: its ``__init__.pyi``.
    """

    def __init__(self, package: str, stub: Path) -> None:
        self.package = package
        self.modules: dict[str, str] = {}
        """The full name of a module by its public name."""
        self.members: dict[str, str] = {}
        """The module that defines another public name."""
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                self._add(stub.parent, node.module, [each.name for each in node.names])
        aliases = {f"{package}.{name}": module for name, module in self.modules.items()}
        aliases = {alias: module for alias, module in aliases.items() if alias != module}
        sys.meta_path.insert(0, AliasFinder(aliases))

    def _add(self, root: Path, module: str, names: list[str]) -> None:
        folder = root.joinpath(*module.split(".")[1:])
        for name in names:
            if (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file():
                self.modules[name] = f"{module}.{name}"
            else:
                self.members[name] = module

    def __iter__(self) -> Iterator[str]:
        return iter(sorted([*self.modules, *self.members]))

    def get(self, name: str) -> Any:
        """Import what a name stands for."""
        if name in self.modules:
            return importlib.import_module(self.modules[name])
        if name in self.members:
            return getattr(importlib.import_module(self.members[name]), name)
        raise AttributeError(f"module '{self.package}' has no attribute '{name}'")
