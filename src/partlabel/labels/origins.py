"""Who looked for what: for each origin and class, whether presences or absences were noted."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from partlabel.base.errors import some
from partlabel.labels.table import ABSENT, PRESENT, LabelTable

NO_ORIGIN = "(none)"
_ENOUGH = 5  # present labels without any absent one, from which a pattern is suspected

Kind = Literal["presences", "absences", "both"]


@dataclass(frozen=True)
class Noted:
    """The labels of one origin for one class."""

    present: int
    absent: int

    @property
    def kind(self) -> Kind:
        """Whether presences, absences or both were noted."""
        if self.present and self.absent:
            return "both"
        return "presences" if self.present else "absences"


@dataclass(frozen=True)
class OriginSummary:
    """What one origin noted.

    Args:
        name: the origin; ``(none)`` stands for labels without one.
        images: number of images with labels of this origin.
        noted: its labels per class, for the classes that it has labels of.
    """

    name: str
    images: int
    noted: dict[str, Noted]

    @property
    def presences_only(self) -> list[str]:
        """Classes with several present labels and no absent ones."""
        return [
            name
            for name, noted in self.noted.items()
            if noted.present >= _ENOUGH and not noted.absent
        ]

    def suspicion(self) -> str:
        """A sentence about classes for which probably only presences were noted, or nothing."""
        names = self.presences_only
        if not names:
            return ""
        subject = "any class" if len(names) == len(self.noted) > 1 else some(names)
        return f"no image of '{self.name}' has {subject} absent: probably only presences were noted"


def origin_summaries(table: LabelTable) -> list[OriginSummary]:
    """What each origin of a table noted, in the order of the origins; empty if it has none.

    >>> table = LabelTable(["a", "b"], ["cat", "dog"], [[1, 0], [-1, 1]]).with_origin("north")
    >>> [(name, noted.kind) for name, noted in origin_summaries(table)[0].noted.items()]
    [('cat', 'both'), ('dog', 'presences')]
    """
    if table.cells.details.origins is None:
        return []
    cells = table.cells
    names, classes = [NO_ORIGIN, *table.origins], list(table.classes)
    known = cells.where(np.asarray(cells.values != 0))
    index = known.origins_or_none().astype(np.int64) * len(classes) + known.columns
    shape = (len(names), len(classes))
    present, absent = (
        np.bincount(index[known.values == value], minlength=shape[0] * shape[1]).reshape(shape)
        for value in (PRESENT, ABSENT)
    )
    pairs = np.unique(known.origins_or_none().astype(np.int64) * len(table) + known.rows)
    images = np.bincount(pairs // max(len(table), 1), minlength=len(names))
    summaries = []
    for code, name in enumerate(names):
        columns = np.flatnonzero(present[code] + absent[code]).tolist()
        noted = {classes[j]: Noted(int(present[code, j]), int(absent[code, j])) for j in columns}
        if noted:
            summaries.append(OriginSummary(name, int(images[code]), noted))
    return summaries
