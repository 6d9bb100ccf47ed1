"""Summarising a label file and checking it for problems."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from partlabel.images.collection import Images
from partlabel.images.folder import unreadable
from partlabel.images.matching import spellings
from partlabel.images.named_images import open_images
from partlabel.labels import CHOSEN, CONFIRMED, MODEL, RANDOM, LabelTable
from partlabel.labels.formats import Notes
from partlabel.labels.mixed_tags import MixedTags, find_mixed_tags
from partlabel.labels.origins import OriginSummary, origin_summaries


@dataclass(frozen=True)
class ClassSummary:
    """The labels of one class in numbers; ``uncertain`` labels are counted as unknown too."""

    name: str
    present: int
    absent: int
    unknown: int
    known: float
    uncertain: int

    @property
    def evaluable(self) -> bool:
        """Whether metrics are defined: at least one present and one absent label are known."""
        return self.present > 0 and self.absent > 0


@dataclass(frozen=True)
class SplitSummary:
    """The number of images in a split, and the share of its labels that are known."""

    name: str
    images: int
    known: float


@dataclass
class FileSummary:
    """Comparison of the images of a table with those of a folder.

    Args:
        folder: the folder.
        found: number of files that belong to images of the table.
        missing: images of the table without a file.
        unreadable: images whose file cannot be decoded, with the reason.
        unmentioned: files that belong to no image of the table.
        spellings: number of images whose file is spelled differently, by how it was found.
        shared: files with several images of the table, and the names of these.
    """

    folder: str
    found: int
    missing: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    unmentioned: list[str] = field(default_factory=list)
    spellings: dict[str, int] = field(default_factory=dict)
    shared: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Inspection:
    """The result of :func:`inspect`.

    Args:
        images: number of images.
        known: share of all labels that are known.
        classes: one summary per class.
        nothing_known: number of images without any known label.
        splits: one summary per split.
        scores: number of cells with a model's score.
        from_model: number of labels that come from a model.
        asked: number of labels that were asked for at random, that were asked for by a model's
            choice, and that were confirmed.
        origins: what each origin noted, if labels have origins.
        mixed_tags: images that look as if they had tags, among labels of both kinds.
        notes: the reader's remarks about the file.
        files: the check of the image files, if there was one.
    """

    images: int
    known: float
    classes: list[ClassSummary]
    nothing_known: int
    splits: list[SplitSummary]
    scores: int
    from_model: int
    asked: dict[str, int]
    origins: list[OriginSummary]
    mixed_tags: list[MixedTags]
    notes: Notes
    files: FileSummary | None = None

    @property
    def not_evaluable(self) -> list[str]:
        """Classes without known present labels or without known absent labels."""
        return [summary.name for summary in self.classes if not summary.evaluable]

    def as_json(self) -> dict[str, Any]:
        """All fields, as ``json.dump`` needs them."""
        origins = [
            {
                "name": origin.name,
                "images": origin.images,
                "noted": {
                    name: {"kind": noted.kind, **asdict(noted)}
                    for name, noted in origin.noted.items()
                },
                "presences_only": origin.presences_only,
            }
            for origin in self.origins
        ]
        tags = [one._asdict() for one in self.mixed_tags]
        return asdict(self) | {
            "not_evaluable": self.not_evaluable,
            "origins": origins,
            "mixed_tags": tags,
        }


def inspect(
    table: LabelTable,
    notes: Notes | None = None,
    images: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Inspection:
    """Summarise a table, and check the image files if a folder is given.

    Args:
        notes: the reader's remarks about the file.
        images: a folder of images; those that belong to the table are decoded.
        progress: called after each image with the number of images checked and the total.

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
        asked={
            name: int(np.count_nonzero(cells.asked_or_not() == kind))
            for name, kind in (("random", RANDOM), ("chosen", CHOSEN), ("confirmed", CONFIRMED))
        },
        origins=origin_summaries(table),
        mixed_tags=find_mixed_tags(table),
        notes=notes,
    )
    if images is not None:
        result.files = _check_files(table, open_images(images), progress)
    return result


def split_summaries(table: LabelTable) -> list[SplitSummary]:
    """The splits of a table in order of appearance; ``(none)`` stands for images without split."""
    if table.splits is None:
        return []
    summaries = []
    codes, names = table.splits.array.indices.to_numpy(), table.splits.array.dictionary
    known_per_image = np.bincount(table.cells.rows[table.cells.values != 0], minlength=len(table))
    for code, name in enumerate(names.to_pylist()):
        rows = codes == code
        if rows.any():
            share = float(known_per_image[rows].mean()) / max(len(table.classes), 1)
            summaries.append(SplitSummary(name or "(none)", int(rows.sum()), share))
    return summaries


def _check_files(
    table: LabelTable, files: Images, progress: Callable[[int, int], object] | None
) -> FileSummary:
    matches = files.match(table.ids)
    file_of = {
        name: None if match is None else match.file
        for name, match in zip(table.ids, matches, strict=True)
    }
    names_of: dict[str, list[str]] = {}
    for name, file in file_of.items():
        if file is not None:
            names_of.setdefault(file, []).append(name)
    mentioned = sorted(names_of)
    images = [files.at(file) for file in mentioned]

    def report(checked: int) -> None:
        if progress is not None:
            progress(checked, len(mentioned))

    reasons = unreadable(images, report)
    broken = {
        file: reasons[image]
        for file, image in zip(mentioned, images, strict=True)
        if image in reasons
    }
    return FileSummary(
        folder=str(files.where),
        found=len(mentioned),
        missing=[name for name, file in file_of.items() if file is None],
        unreadable={name: broken[file] for name, file in file_of.items() if file in broken},
        unmentioned=[
            *(name for name in files.names if name not in names_of),
            *files.undecodable,
        ],
        spellings=spellings(matches),
        shared={file: names for file, names in names_of.items() if len(names) > 1},
    )
