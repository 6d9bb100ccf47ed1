"""Images that are kept together, such as those of a folder or of an archive."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from partlabel.images.matching import FileNames, Match
from partlabel.images.stored import ImageFile


class Images(ABC):
    """Images with names.

    Attributes:
        where: the folder or the files, as they were named by the user.
        hint: what to check if an image is not here, for errors.
    """

    where: Path
    hint: str

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The name of each image, in the order in which all are used. No two are the same."""

    @property
    @abstractmethod
    def undecodable(self) -> Sequence[str]:
        """Names whose bytes are not UTF-8, so that no id can be one of them; escaped."""

    @abstractmethod
    def at(self, name: str) -> ImageFile:
        """The image with one of the names."""

    @property
    def home(self) -> str:
        """The absolute path that ids may start with; empty if there is none."""
        return ""

    def locate(self, ids: Iterable[str]) -> list[ImageFile | None]:
        """The image of each id, None if there is none.

        An id is one of:

        * a name, with or without suffix; it may start with the last part of ``home``
        * the last part of a name, with or without suffix, if only one image has it
        * ``home`` and a name
        * one of these in another case, with other separators or in another Unicode form, or in
          other folders, if only one image and only one of the ids is spelled like this

        No id leads to anything else: only images that were listed are found.
        """
        return [None if match is None else self.at(match.file) for match in self.match(ids)]

    def match(self, ids: Iterable[str]) -> list[Match | None]:
        """The name of the image of each id, and how it was found; see :meth:`locate`."""
        return self._file_names.match(ids)

    @cached_property
    def _file_names(self) -> FileNames:
        return FileNames(self.names, self.home)
