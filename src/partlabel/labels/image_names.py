"""Images whose names in label files differ from those of their files."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from partlabel.base.errors import count
from partlabel.images.collection import Images
from partlabel.images.matching import describe, spellings
from partlabel.labels.combine import Conflict
from partlabel.labels.merge import merge
from partlabel.labels.names import Names
from partlabel.labels.table import LabelTable


@dataclass(frozen=True)
class NamedLikeFiles:
    """A table whose images are named after their files.

    Args:
        table: the table; images without a file keep their names.
        names: the file of each image that was named differently.
        spelled: number of images by how their file was found, without those named exactly.
        joined: number of rows that became part of another one, because their file is the same.
        missing: number of images without a file.
    """

    table: LabelTable
    names: dict[str, str]
    spelled: dict[str, int]
    joined: int
    missing: int

    def __str__(self) -> str:
        how = f" ({describe(self.spelled)})" if self.spelled else ""
        parts = [f"{count(len(self.names), 'image')} renamed{how}"] if self.names else []
        if self.joined:
            parts.append(f"{count(self.joined, 'row')} joined with others of the same file")
        if self.missing:
            parts.append(f"{count(self.missing, 'image')} without a file")
        return ", ".join(parts) or "all images are named like their files"


def name_like_files(
    table: LabelTable, files: Images, conflict: Conflict = "error"
) -> NamedLikeFiles:
    """Name each image after its file; images with the same file become one row.

    Args:
        table: the labels.
        files: the images.
        conflict: the rule for rows of one file that disagree, as in :meth:`LabelTable.merge`.
    """
    old = list(table.ids)
    matches = files.match(old)
    names = [
        name if match is None else match.file for name, match in zip(old, matches, strict=True)
    ]
    missing = sum(match is None for match in matches)
    earlier: Counter[str] = Counter()
    turn = np.zeros(len(names), dtype=np.int64)  # how many rows before this one have its name
    for row, name in enumerate(names):
        turn[row] = earlier[name]
        earlier[name] += 1
    new_names = Names(names)
    parts = [
        _renamed(table.subset(rows), new_names.take(rows))
        for number in range(int(turn.max(initial=0)) + 1)
        for rows in [np.flatnonzero(turn == number)]
    ]
    joined = merge(parts, conflict) if len(parts) > 1 else parts[0]
    changed = {a: b for a, b in zip(old, names, strict=True) if a != b}
    return NamedLikeFiles(joined, changed, spellings(matches), len(names) - len(joined), missing)


def _renamed(table: LabelTable, ids: Names) -> LabelTable:
    return LabelTable.from_cells(ids, table.classes, table.cells, table.splits, table.origins)
