"""Which labels to ask people for, so that a guarantee can be given: a random sample of images."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count
from partlabel.base.randomness import key, keys, uniform
from partlabel.labels import PRESENT, LabelTable
from partlabel.labels.formats.delimited import write_delimited
from partlabel.labels.formats.formulas import quoted
from partlabel.metrics.bounds import fewest, needed_labels
from partlabel.training.reserving import evidence
from partlabel.training.run import Run

_FOUND = 0.35  # share of the present labels that is expected beyond a threshold
_COLUMNS = ["image", "class", "value"]


@dataclass(frozen=True)
class Plan:
    """A random sample of images to label for all classes.

    Args:
        table: all images and classes of a run, with the labels that are known.
        rows: the images to label, in the order in which they should be.
        precision: the precision that the labels are to show.
        present: present labels per image that are expected.
        wanted: the number of images that show it in most cases; fewer may have unknown labels.
    """

    table: LabelTable
    rows: NDArray[np.int64]
    precision: float
    present: float
    wanted: int

    @property
    def labels(self) -> int:
        """The number of labels to give."""
        return int((self.table.dense(self.rows) == 0).sum())

    def describe(self) -> str:
        """What to do, and what it makes possible."""
        few = math.ceil(fewest(self.precision) / _FOUND / self.present)
        images, precision = count(len(self.rows), "image"), f"{100 * self.precision:g}%"
        more = (
            "To draw further images, add them to the label file without labels (`partlabel merge "
            "LABELS NAMES.txt -o NEW`, one name per line), and train again"
        )
        if not len(self.rows):
            return f"there is nothing to label: all labels of the label file are known. {more}"
        shown = f"show {precision} for present labels of all classes together"
        if len(self.rows) < few:
            enough = f"Too few images have unknown labels to {shown}: it takes {few:,}. {more}"
        elif len(self.rows) < self.wanted:
            enough = (
                f"The first {few:,} of them can {shown} if no error is among them. About "
                f"{self.wanted:,} do so in most cases, but no more have unknown labels. {more}"
            )
        else:
            enough = (
                f"The first {few:,} of them can {shown} if no error is among them; all of them do "
                "so in most cases"
            )
        return (
            f"label {images} for all classes ({self.labels:,} labels). They are drawn at random. "
            f"{enough}. Absent labels need fewer. Fill in the column 'value' with 1 or 0, merge "
            "the file into your labels (`partlabel merge LABELS FILE -o NEW`), and train again"
        )

    def save(self, path: str | os.PathLike[str], *, excel_safe: bool = False) -> None:
        """Write one line per label to give, the images in random order."""
        unknown = self.table.dense(self.rows) == 0
        names = [quoted(name, excel_safe=excel_safe) for name in self.table.classes]
        lines = [
            (quoted(self.table.ids[int(row)], excel_safe=excel_safe), names[j], "")
            for number, row in enumerate(self.rows)
            for j in np.flatnonzero(unknown[number])
        ]
        write_delimited(Path(path), _COLUMNS, lines)


def make_plan(run: Run, precision: float) -> Plan:
    """Draw as many images as a pool of all classes needs to show a precision in most cases."""
    selection = run.selection
    known = selection.known
    judged = evidence(known)
    share = (judged.cells.values == PRESENT).sum() / max(np.count_nonzero(judged.cells.values), 1)
    # without labels of both kinds, images are taken to have one present label more than is known
    tags = (known.cells.values == PRESENT).sum() / max(len(known), 1)
    present = max(float(share) * len(known.classes), float(tags) if not share else 0.0, 0.2)
    number = math.ceil(needed_labels(precision) / _FOUND / present)
    labelled = np.bincount(known.cells.rows, known.cells.values != 0, len(known))
    open_rows = np.flatnonzero(labelled < len(known.classes))
    draws = uniform(key(run.settings.seed, "plan"), keys(known.ids.take(open_rows)))
    rows = open_rows[np.argsort(draws, kind="stable")[:number]]
    return Plan(known, rows, precision, present, number)
