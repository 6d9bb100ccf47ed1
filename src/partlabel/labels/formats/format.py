"""What a label format has to offer; each lives in a file of its own."""

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from partlabel.base.errors import count
from partlabel.labels import ABSENT, LabelTable
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated


class Format(ABC):
    """One way to write labels down.

    Attributes:
        name: what ``--format`` calls it.
        suffixes: endings of file names that ask for it when nothing else does.
        lists_only_present: the format cannot say "absent", so a reader must be told what a class
            means that is not listed.
        lists_every_cell: the format has a place for each cell, so no cell is ever unlisted.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    lists_only_present = False
    lists_every_cell = False

    @abstractmethod
    def matches(self, source: Source) -> bool:
        """Whether the content of ``source`` looks like this format."""

    @abstractmethod
    def read(self, source: Source) -> Stated:
        """All that ``source`` states."""

    @abstractmethod
    def write(self, table: LabelTable, path: Path) -> None:
        """Write ``table`` to ``path``, whole or not at all."""

    def drops(self, table: LabelTable) -> list[str]:
        """What this format cannot say of ``table``, in words."""
        return []


def drops_scores(table: LabelTable) -> list[str]:
    """For formats that hold values alone."""
    cells, lost = table.cells, []
    scores = int(np.count_nonzero(~np.isnan(cells.scores_or_nan())))
    if scores:
        lost.append(count(scores, "score"))
    if cells.sources is not None:
        lost.append("which labels come from a model")
    return lost


def drops_splits(table: LabelTable) -> list[str]:
    """For formats without splits."""
    return [] if table.splits is None else ["the splits"]


def drops_silent(
    table: LabelTable, *, images: bool = True, values: tuple[int, ...] = ()
) -> list[str]:
    """For formats that name a class (and an image) only where they state something about it.

    Args:
        images: whether an image needs a statement too.
        values: the values that are statements; all stored cells if none are given.
    """
    cells = table.cells
    said = np.isin(cells.values, values) if values else np.ones(len(cells.values), np.bool_)
    lost = []
    silent = len(table.classes) - len(np.unique(cells.columns[said]))
    if silent:
        lost.append(f"{count(silent, 'class', 'classes')} of which nothing is stated")
    silent = len(table.ids) - len(np.unique(cells.rows[said]))
    if silent and images:
        lost.append(f"{count(silent, 'image')} of which nothing is stated")
    return lost


def drops_order(table: LabelTable) -> list[str]:
    """For formats without a list of classes, whose readers sort them by name."""
    classes = list(table.classes)
    return ["the order of the classes"] if classes != sorted(classes) else []


def drops_absent(table: LabelTable) -> list[str]:
    """For formats that list only what is present."""
    absent = int(np.count_nonzero(table.cells.values == ABSENT))
    unknown = len(table.ids) * len(table.classes) - int(np.count_nonzero(table.cells.values))
    if absent and unknown:
        return [f"that {count(absent, 'cell')} are known to be absent and {unknown:,} unknown"]
    return []
