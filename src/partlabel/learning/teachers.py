"""Scores of other models for some images and classes: evidence for a classifier, never labels."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import scipy
from numpy.typing import NDArray
from scipy import sparse

from partlabel.base.errors import FileError, count, some
from partlabel.base.files import atomic_file
from partlabel.images.batches import Rows
from partlabel.labels import LabelTable, Names
from partlabel.labels.formats.delimited import Delimited, read_delimited
from partlabel.labels.formats.parquet import read_parquet
from partlabel.labels.formats.source import Source

_IMAGE = ("image", "ImageID", "id", "filename", "file", "path")
_CLASS = ("class", "LabelName", "label", "category")
_LOGIT = ("logit",)
_PROBABILITY = ("score", "probability", "Confidence")
_TOO_GOOD, _ENOUGH = (
    0.995,
    20,
)  # area under the ROC curve, and known present labels to measure it on
_CERTAIN = 1e-4  # a probability is taken to be at least this, and at most 1 minus this

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Teacher:
    """The scores of one model, one entry per cell.

    Args:
        path: the file that they come from.
        ids, classes: the names of its images and classes.
        rows, columns: [m] the image and the class of each score.
        logits: [m] the scores.
    """

    path: Path
    ids: Names
    classes: Names
    rows: Rows
    columns: Rows
    logits: Numbers

    @cached_property
    def digest(self) -> str:
        """A hash of the scores."""
        digest = hashlib.blake2b(digest_size=16)
        for names in (self.ids, self.classes):
            digest.update("\x1f".join(names).encode())
        for array in (self.rows, self.columns, self.logits):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def for_classes(self, classes: Sequence[str]) -> "Teacher":
        """The scores of these classes only; it is an error if there are none."""
        columns = Names(classes).find(self.classes)[self.columns]
        kept = columns >= 0
        if not kept.any():
            raise FileError(
                self.path,
                f"has scores of none of the classes to learn, such as {some(classes)}; its classes "
                f"are such as {some(self.classes[:3])}",
            )
        return Teacher(
            self.path, self.ids, Names(classes), self.rows[kept], columns[kept], self.logits[kept]
        )

    def write(self, path: Path) -> None:
        """Write the scores as a table that :func:`read_teacher` reads."""
        table = pa.table(
            {
                "image": pc.take(self.ids.plain(), pa.array(self.rows)),
                "class": pc.take(self.classes.plain(), pa.array(self.columns)),
                "logit": pa.array(self.logits),
            }
        )
        with atomic_file(path) as stream:
            pyarrow.parquet.write_table(table, stream)


def read_teacher(path: Path) -> Teacher:
    """Read the scores of a model.

    A CSV or Parquet table with one row per score: columns for the image (``image`` or
    ``ImageID``), the class (``class`` or ``LabelName``), and a probability from 0 to 1 (``score``,
    ``probability`` or ``Confidence``) or a ``logit``. Other columns are ignored, so that tables in
    the formats ``cells`` and ``open-images`` can be read. A row with an empty score is left out.
    """
    source = Source(path)
    if source.kind not in ("parquet", "text"):
        raise source.error("scores of a teacher are read from a CSV or Parquet table")
    table = read_parquet(source) if source.kind == "parquet" else read_delimited(source)
    image, label = _column(table, _IMAGE, "images"), _column(table, _CLASS, "classes")
    logits = _logits(table)
    kept = np.flatnonzero(~np.isnan(logits))
    rows, columns = table.codes(image).astype(np.int64), table.codes(label).astype(np.int64)
    ids, classes = Names(table.values(image)), Names([n.strip() for n in table.values(label)])
    if not len(kept):
        raise source.error("has no score")
    order = kept[np.lexsort((columns[kept], rows[kept]))]
    same = (np.diff(rows[order]) == 0) & (np.diff(columns[order]) == 0)
    if same.any():
        second = int(order[1:][same][0])
        raise source.error(
            f"the image '{ids[int(rows[second])]}' has two scores for "
            f"'{classes[int(columns[second])]}'; keep one of them",
            table.line(second),
        )
    return Teacher(path, ids, classes, rows[order], columns[order], logits[order])


def _column(table: Delimited, names: tuple[str, ...], what: str) -> int:
    for name in names:
        if name in table.header:
            return table.column(name)
    raise table.source.error(
        f"has no column of {what}; call it '{names[0]}' (its columns: {some(table.header, 8)})"
    )


def _logits(table: Delimited) -> Numbers:
    """[n] the score of each record as a logit, NaN for an empty one."""
    if _LOGIT[0] in table.header:
        column = table.column(_LOGIT[0])
        numbers = {text: _finite(text) for text in table.values(column)}
        invalid = [text for text, number in numbers.items() if number is None]
        table.reject(column, invalid, "expected a finite number, or nothing")
        logits = np.array([number or 0.0 for number in numbers.values()] or [0.0])
        return np.asarray(logits[table.codes(column)])
    column = _column(table, _PROBABILITY, "scores")
    values = [text for text in table.values(column) if _is_out_of_range(text)]
    table.reject(
        column, values, "a score is a probability from 0 to 1; call the column 'logit' for logits"
    )
    shares = table.numbers(column).clip(_CERTAIN, 1 - _CERTAIN)
    return np.asarray((np.log(shares) - np.log1p(-shares))[table.codes(column)])


def _finite(text: str) -> float | None:
    """A finite number, NaN for an empty text, None for any other text."""
    if not text.strip():
        return math.nan
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _is_out_of_range(text: str) -> bool:
    number = _finite(text)
    return number is not None and not math.isnan(number) and not 0 <= number <= 1


def refuse_overlap(teachers: Sequence[Teacher]) -> None:
    """Raise an error if two teachers have a score for the same image and class."""
    for number, second in enumerate(teachers):
        for first in teachers[:number]:
            rows = first.ids.find(second.ids)[second.rows]
            columns = first.classes.find(second.classes)[second.columns]
            width = len(first.classes)
            codes = np.where((rows >= 0) & (columns >= 0), rows * width + columns, -1)
            twice = np.isin(codes, first.rows * width + first.columns)
            if twice.any():
                cell = int(np.flatnonzero(twice)[0])
                image, name = second.ids[int(second.rows[cell])], int(second.columns[cell])
                raise FileError(
                    second.path,
                    f"{count(int(twice.sum()), 'score')} for the same images and classes as "
                    f"{first.path}, such as '{image}', '{second.classes[name]}'; average them into "
                    "one file, or leave one out",
                )


class TeacherScores:
    """The scores of teachers for the images and classes of a table, read in batches.

    Args:
        teachers: T, with scores of the classes of the table.
        table: n images and C classes.
    """

    def __init__(self, teachers: Sequence[Teacher], table: LabelTable) -> None:
        self.teachers = teachers
        self._logits, self._known = [], []
        for teacher in teachers:
            rows = table.ids.find(teacher.ids)[teacher.rows]
            columns = table.classes.find(teacher.classes)[teacher.columns]
            kept = (rows >= 0) & (columns >= 0)
            cells = rows[kept], columns[kept]
            logits, ones = teacher.logits[kept], np.ones(int(kept.sum()))
            self._logits.append(sparse.csr_array((logits, cells), table.shape))
            self._known.append(sparse.csr_array((ones, cells), table.shape))

    def read(self, rows: Rows) -> NDArray[np.float32]:
        """[b, 2, T, C] the logits, 0 where there is none, and 1 where there is one."""
        parts = [[each[rows].toarray() for each in one] for one in (self._logits, self._known)]
        return np.asarray(parts, dtype=np.float32).transpose(2, 0, 1, 3)

    def covered(self) -> NDArray[np.int64]:
        """[T] the number of images with a score of each teacher."""
        return np.array([np.count_nonzero(np.diff(known.indptr)) for known in self._known])

    def statistics(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """[T, C] mean and standard deviation of the scores of these images; 0 and 1 for none."""
        means, deviations = [], []
        for logits, known in zip(self._logits, self._known, strict=True):
            number = np.maximum(known[rows].sum(axis=0), 1)
            mean = logits[rows].sum(axis=0) / number
            variance = (logits[rows] ** 2).sum(axis=0) / number - mean**2
            means.append(mean)
            deviations.append(np.sqrt(np.where(variance > 1e-8, variance, 1.0)))
        return np.array(means), np.array(deviations)

    def separations(self, table: LabelTable) -> list["Separation"]:
        """How well each teacher tells known present labels of a table from absent ones."""
        result = []
        for logits, known in zip(self._logits, self._known, strict=True):
            both = known.multiply(table.matrix).tocoo()
            scores, present = np.asarray(logits[both.row, both.col]).ravel(), both.data > 0
            areas, weights = [], []
            for j in np.unique(both.col):
                area = _area(scores[both.col == j], present[both.col == j])
                if not math.isnan(area):
                    areas.append(area)
                    weights.append(int(present[both.col == j].sum()))
            area = float(np.average(areas, weights=weights)) if areas else math.nan
            result.append(Separation(area, sum(weights)))
        return result


def _area(scores: Numbers, present: NDArray[np.bool_]) -> float:
    """The area under the ROC curve; NaN unless there are present and absent labels."""
    number, others = int(present.sum()), int((~present).sum())
    if not number or not others:
        return math.nan
    mean_rank = scipy.stats.rankdata(scores)[present].mean()
    return float((mean_rank - (number + 1) / 2) / others)


class Separation(NamedTuple):
    """How well a teacher knows the known labels.

    Args:
        area: under its ROC curve, mean over the classes, weighted by their present labels.
        present: known present labels with a score.
    """

    area: float
    present: int

    @property
    def too_good(self) -> bool:
        """Whether it separates the labels as only a model does that was trained on them."""
        return self.present >= _ENOUGH and self.area >= _TOO_GOOD
