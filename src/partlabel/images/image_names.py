"""Names of images, also found without their suffix or folder where only one name fits."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path


class ImageNames:
    """Finds a name in a list, as a path with or without suffix, or as a file name.

    >>> aliases = ImageNames(["a/cat.jpg", "b/dog.png"])
    >>> aliases.by_path("a/cat"), aliases.by_path("cat"), aliases.by_file_name("cat")
    ('a/cat.jpg', None, 'a/cat.jpg')
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def by_path(self, path: str) -> str | None:
        """The name that is this path, or else the only one that is this path with a suffix."""
        return path if path in self._known else self._without_suffix.get(path)

    def by_file_name(self, name: str) -> str | None:
        """The only name whose last part is this one, with or without suffix."""
        return self._file_names.get(name)

    @cached_property
    def _known(self) -> set[str]:
        return set(self.names)

    @cached_property
    def _without_suffix(self) -> dict[str, str | None]:
        return _unique_aliases((name.rsplit(".", 1)[0], name) for name in self.names)

    @cached_property
    def _file_names(self) -> dict[str, str | None]:
        paths = [(Path(name), name) for name in self.names]
        return _unique_aliases(
            (alias, name) for path, name in paths for alias in (path.name, path.stem)
        )


def _unique_aliases(pairs: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """The name for each alias; None for an alias that occurs more than once."""
    names: dict[str, str | None] = {}
    for alias, name in pairs:
        names[alias] = None if alias in names else name
    return names
