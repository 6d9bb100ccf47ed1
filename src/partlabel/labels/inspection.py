"""What is in a label file, and what is wrong with it."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from partlabel.images.folder import ImageFiles, unreadable
from partlabel.labels import MODEL, LabelTable
from partlabel.labels.formats import Notes


@dataclass(frozen=True)
class ClassSummary:
    """What is known of one class; ``uncertain`` labels are among the unknown ones."""

    name: str
    present: int
    absent: int
    unknown: int
    known: float
    uncertain: int

    @property
    def evaluable(self) -> bool:
        """Whether metrics can say anything: a present and an absent label are known."""
        return self.present > 0 and self.absent > 0


@dataclass(frozen=True)
class SplitSummary:
    """How large a split is, and what share of its labels is known."""

    name: str
    images: int
    known: float


@dataclass
class FileSummary:
    """How the images of a table and those of a folder fit together."""

    folder: str
    found: int
    missing: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    unmentioned: list[str] = field(default_factory=list)


@dataclass
class Inspection:
    """What :func:`inspect` finds; counts are of images unless they say otherwise."""

    images: int
    known: float
    classes: list[ClassSummary]
    nothing_known: int
    splits: list[SplitSummary]
    scores: int
    from_model: int
    notes: Notes
    files: FileSummary | None = None

    @property
    def not_evaluable(self) -> list[str]:
        """Classes without a known present or without a known absent label."""
        return [summary.name for summary in self.classes if not summary.evaluable]

    def as_json(self) -> dict[str, Any]:
        """All of it, for ``json.dump``."""
        return asdict(self) | {"not_evaluable": self.not_evaluable}


def inspect(
    table: LabelTable,
    notes: Notes | None = None,
    images: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Inspection:
    """Summarise a table, and check the image files if a folder is given.

    Args:
        notes: what was noticed while the table was read.
        images: a folder; every image that belongs to the table is decoded.
        progress: is told how many of how many images are checked.

    >>> inspect(LabelTable(["a", "b"], ["cat", "dog"], [[1, 0], [-1, 0]])).not_evaluable
    ['dog']
    """
    notes = notes or Notes()
    counts, cells = table.counts(), table.cells
    known_rows = cells.rows[cells.values != 0]
    summaries = [
        ClassSummary(
            name,
            int(count.present),
            int(count.absent),
            int(count.unknown),
            float(count.present + count.absent) / max(len(table), 1),
            notes.uncertain.get(name, 0),
        )
        for name, count in zip(table.classes, counts, strict=True)
    ]
    result = Inspection(
        images=len(table),
        known=table.known,
        classes=summaries,
        nothing_known=len(table) - len(np.unique(known_rows)),
        splits=split_summaries(table),
        scores=int(np.count_nonzero(~np.isnan(cells.scores_or_nan()))),
        from_model=int(np.count_nonzero(cells.sources_or_human() == MODEL)),
        notes=notes,
    )
    if images is not None:
        result.files = _check_files(table, ImageFiles(images), progress)
    return result


def split_summaries(table: LabelTable) -> list[SplitSummary]:
    """The splits of a table in order of appearance; images without one come under ``(none)``."""
    if table.splits is None:
        return []
    found = []
    codes, names = table.splits.array.indices.to_numpy(), table.splits.array.dictionary
    known = np.bincount(table.cells.rows[table.cells.values != 0], minlength=len(table))
    for code, name in enumerate(names.to_pylist()):
        rows = codes == code
        if rows.any():
            share = float(known[rows].mean()) / max(len(table.classes), 1)
            found.append(SplitSummary(name or "(none)", int(rows.sum()), share))
    return found


def _check_files(
    table: LabelTable, files: ImageFiles, progress: Callable[[int, int], object] | None
) -> FileSummary:
    paths = dict(zip(table.ids, files.locate(table.ids), strict=True))
    mentioned = {path for path in paths.values() if path is not None}
    broken = unreadable(sorted(mentioned), lambda n: progress and progress(n, len(mentioned)))
    return FileSummary(
        folder=str(files.folder),
        found=sum(path is not None for path in paths.values()),
        missing=[name for name, path in paths.items() if path is None],
        unreadable={name: broken[path] for name, path in paths.items() if path in broken},
        unmentioned=[name for name in files.names if files.folder / name not in mentioned],
    )
