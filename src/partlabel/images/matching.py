"""Finding the file of an image whose name is spelled in another way than the file."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

AS_WRITTEN = "as written"
WITHOUT_SUFFIX = "without suffix"
BY_FILE_NAME = "by the file name without its folder"
OTHER_SPELLING = "in another case, with other separators or another Unicode form"


@dataclass(frozen=True)
class Match:
    """The file of a name, and how it was found: one of the constants of this module."""

    file: str
    how: str


def simplified(name: str) -> str:
    """A name without differences in case, separators and Unicode forms.

    >>> simplified("Photos\\\\E\\u0301t\\u00e9.JPG")
    'photos/\\xe9t\\xe9.jpg'
    """
    folded = unicodedata.normalize("NFC", name.replace("\\", "/")).casefold()
    return unicodedata.normalize("NFC", folded).removeprefix("./")


class FileNames:
    """The names of files, to be found by other spellings.

    Args:
        files: paths relative to a folder, with ``/``.
        folder: the absolute path of the folder; names may start with it, or with its last part.
    """

    def __init__(self, files: Sequence[str], folder: str) -> None:
        self.files, self.folder = files, folder
        self._prefixes = (f"{folder}/", f"{folder.rsplit('/', 1)[-1]}/")

    def match(self, names: Iterable[str]) -> list[Match | None]:
        """The file of each name, None if there is none or if it is not clear which one it is.

        A name that is only similar to a file counts if no other name is that file.
        """
        names = list(names)
        matches = [self._exact(name) for name in names]
        missing = [i for i, match in enumerate(matches) if match is None]
        if not missing:
            return matches
        similar = {i: self._similar(names[i]) for i in missing}
        uses = Counter(match.file for match in matches if match is not None)
        uses.update(match.file for match in similar.values() if match is not None)
        for i, match in similar.items():
            if match is not None and uses[match.file] == 1:
                matches[i] = match
        return matches

    def _exact(self, name: str) -> Match | None:
        for path in (name, *(name.removeprefix(prefix) for prefix in self._prefixes)):
            if path in self._known:
                return Match(path, AS_WRITTEN)
            if file := self._by_path_without_suffix.get(path):
                return Match(file, WITHOUT_SUFFIX)
        file = self._by_file_name.get(name)
        return Match(file, BY_FILE_NAME) if file else None

    def _similar(self, name: str) -> Match | None:
        """A file whose simplified name, or whose name without folders, is that of ``name``."""
        if ".." in name.replace("\\", "/").split("/"):
            return None
        last = name.replace("\\", "/").rsplit("/", 1)[-1]
        if file := self._by_file_name.get(last):
            return Match(file, BY_FILE_NAME)
        key = simplified(name)
        for path in (key, *(key.removeprefix(simplified(prefix)) for prefix in self._prefixes)):
            if file := self._by_simplified_path.get(path):
                return Match(file, OTHER_SPELLING)
        file = self._by_simplified_file_name.get(simplified(last))
        return Match(file, OTHER_SPELLING) if file else None

    @cached_property
    def _known(self) -> set[str]:
        return set(self.files)

    @cached_property
    def _by_path_without_suffix(self) -> dict[str, str | None]:
        return _unique((_without_suffix(file), file) for file in self.files)

    @cached_property
    def _by_file_name(self) -> dict[str, str | None]:
        return self._aliases(lambda file: file.rsplit("/", 1)[-1])

    @cached_property
    def _by_simplified_path(self) -> dict[str, str | None]:
        return self._aliases(simplified)

    @cached_property
    def _by_simplified_file_name(self) -> dict[str, str | None]:
        return self._aliases(lambda file: simplified(file.rsplit("/", 1)[-1]))

    def _aliases(self, name_of: Callable[[str], str]) -> dict[str, str | None]:
        """The file for each of these names, with and without suffix."""
        pairs = ((name_of(file), file) for file in self.files)
        return _unique(
            (alias, file) for name, file in pairs for alias in {name, _without_suffix(name)}
        )


def _without_suffix(name: str) -> str:
    return name.rsplit(".", 1)[0]


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """The file for each alias; None for an alias of several files."""
    files: dict[str, str | None] = {}
    for alias, file in pairs:
        files[alias] = None if alias in files else file
    return files


def spellings(matches: Iterable[Match | None]) -> dict[str, int]:
    """The number of matches of each kind, without those that are as written."""
    kinds = Counter(match.how for match in matches if match is not None)
    return {how: kinds[how] for how in (WITHOUT_SUFFIX, BY_FILE_NAME, OTHER_SPELLING) if kinds[how]}


def describe(spelled: dict[str, int]) -> str:
    """The numbers of :func:`spellings` in words.

    >>> describe({"without suffix": 1200})
    '1,200 found without suffix'
    """
    return ", ".join(f"{number:,} found {how}" for how, number in spelled.items())
