"""The interface of a label format; each format has a file of its own."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from partlabel.base.errors import InputError, count
from partlabel.labels import ABSENT, LabelTable
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated


class Format(ABC):
    """One file format for labels.

    Attributes:
        name: its name for ``--format``.
        suffixes: file name suffixes that select this format for a new file.
        lists_only_present: the format cannot state that a class is absent, so the caller must
            say what an unlisted class means.
        lists_every_cell: the format has an entry for each image and class, so none is unlisted.
        has_free_names: anyone could write any class, so typing errors are to be expected.
        writable: whether tables can be written in this format.
        is_text: whether it is one text file, which can be compressed.
        holds_origins: the format keeps the origins of labels, and which of them were asked for.
        holds_asked: the format keeps which labels were asked for, but no origins.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    lists_only_present = False
    lists_every_cell = False
    has_free_names = False
    writable = True
    is_text = True
    holds_origins = False
    holds_asked = False

    @abstractmethod
    def matches(self, source: Source) -> bool:
        """Whether the content of ``source`` looks like this format."""

    @abstractmethod
    def read(self, source: Source) -> Stated:
        """All statements of ``source``."""

    @abstractmethod
    def write(self, table: LabelTable, path: Path) -> None:
        """Write ``table`` to ``path`` atomically."""

    def writes_text_table(self, path: Path) -> bool:
        """Whether the file that :meth:`write` writes to ``path`` is read with ``read_delimited``.

        Names that look like formulas are then written as ``formulas.py`` describes.
        """
        return False

    def drops(self, table: LabelTable) -> list[str]:
        """Descriptions of the parts of ``table`` that this format cannot hold, except origins."""
        return []

    def losses(self, table: LabelTable) -> list[str]:
        """Descriptions of all parts of ``table`` that this format cannot hold."""
        if self.holds_origins:
            return self.drops(table)
        return self.drops(table) + _drops_origins(table, asked=not self.holds_asked)


class PartsFormat(Format):
    """A format that can be written part by part, so that a table need not be in memory."""

    @abstractmethod
    def write_parts(
        self,
        header: LabelTable,
        parts: Iterable[LabelTable],
        path: Path,
        *,
        every_cell: bool = False,
    ) -> None:
        """Write a table that comes in parts of consecutive images, atomically.

        Args:
            header: its classes and origins, without images. Its splits and the details of its cells
                are not None if those of some part may not be.
            parts: one after the other.
            every_cell: whether images have a cell of each class, but for those that have none.
        """


class ReadOnlyFormat(Format):
    """A format that holds more than labels, such as the images themselves."""

    writable = False

    def write(self, table: LabelTable, path: Path) -> None:
        """Raise an error."""
        raise InputError(f"{path}: files of the format '{self.name}' can only be read")


def drops_scores(table: LabelTable) -> list[str]:
    """For formats without scores and sources."""
    cells, lost = table.cells, []
    scores = int(np.count_nonzero(~np.isnan(cells.scores_or_nan())))
    if scores:
        lost.append(count(scores, "score"))
    if cells.sources is not None:
        lost.append("which labels come from a model")
    return lost


def _drops_origins(table: LabelTable, *, asked: bool) -> list[str]:
    details, lost = table.cells.details, []
    if details.origins is not None:
        lost.append(f"the origins of {count(int(np.count_nonzero(details.origins)), 'label')}")
    if details.asked is not None and asked:
        lost.append(f"that {count(int(np.count_nonzero(details.asked)), 'label')} were asked for")
    return lost


def drops_splits(table: LabelTable) -> list[str]:
    """For formats without splits."""
    return [] if table.splits is None else ["the splits"]


def drops_without_entries(table: LabelTable, *, images: bool = True) -> list[str]:
    """For formats that name a class (and an image) only in entries for a label.

    Args:
        table: a table with only those cells that the format writes.
        images: whether an image also needs an entry.
    """
    cells, lost = table.cells, []
    empty_classes = len(table.classes) - len(np.unique(cells.columns))
    if empty_classes:
        lost.append(f"{count(empty_classes, 'class', 'classes')} without entries")
    empty_images = len(table.ids) - len(np.unique(cells.rows))
    if empty_images and images:
        lost.append(f"{count(empty_images, 'image')} without entries")
    return lost


def drops_order(table: LabelTable) -> list[str]:
    """For formats without a list of classes; their readers sort the classes by name."""
    classes = list(table.classes)
    return ["the order of the classes"] if classes != sorted(classes) else []


def drops_absent(table: LabelTable) -> list[str]:
    """For formats that list only present classes."""
    absent = int(np.count_nonzero(table.cells.values == ABSENT))
    unknown = len(table.ids) * len(table.classes) - int(np.count_nonzero(table.cells.values))
    if absent and unknown:
        return [f"the difference between {count(absent, 'absent label')} and {unknown:,} unknown"]
    return []
