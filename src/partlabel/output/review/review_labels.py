"""The labels under review, class by class, and what the run says about them."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.base.randomness import Keys, keys
from partlabel.labels import LabelTable
from partlabel.output.review.opinions import Opinions

Rows = NDArray[np.int64]


class UnknownNameError(InputError):
    """There is no such class or image."""


class ReviewLabels:
    """Images, classes and labels by position; classes that reviewers add come last.

    Args:
        opinions: the labels, and what the run says about them.
    """

    def __init__(self, opinions: Opinions) -> None:
        self.opinions = opinions
        self.table: LabelTable = opinions.table
        self.images = list(opinions.table.ids)
        self.row_of = {image: row for row, image in enumerate(self.images)}
        self.classes = list(opinions.table.classes)
        self.new_classes: list[str] = []
        self.column_of = {name: column for column, name in enumerate(self.classes)}

    def know(self, name: str) -> None:
        """Add a class, unless there is one of this name."""
        if name not in self.column_of:
            self.column_of[name] = len(self.classes)
            self.classes.append(name)
            self.new_classes.append(name)

    def column(self, name: str) -> int:
        """The position of a class; an error if there is none."""
        if name not in self.column_of:
            raise UnknownNameError(f"there is no class '{name}'")
        return self.column_of[name]

    def image(self, row: int) -> str:
        """The name of an image; an error if there is none."""
        if not 0 <= row < len(self.images):
            raise UnknownNameError(f"there is no image number {row}")
        return self.images[row]

    @cached_property
    def _by_class(self) -> tuple[Rows, NDArray[np.int8], Rows]:
        """Rows and values of known labels, class by class, and where each class starts."""
        cells = self.table.cells
        order = np.argsort(cells.columns, kind="stable")
        starts = np.searchsorted(cells.columns[order], np.arange(len(self.table.classes) + 1))
        return cells.rows[order], np.asarray(cells.values)[order], starts

    def known(self, name: str) -> NDArray[np.int8]:
        """[n] the labels of a class in the file."""
        labels = np.zeros(len(self.images), dtype=np.int8)
        column = self.column(name)
        if column < len(self.table.classes):
            rows, values, starts = self._by_class
            part = slice(starts[column], starts[column + 1])
            labels[rows[part]] = values[part]
        return labels

    def run_scores(self, name: str) -> NDArray[np.float32] | None:
        """[n] the scores of the run for a class; None if it does not know the class."""
        column = self.column(name)
        if column >= len(self.opinions.scores):
            return None
        scores = np.asarray(self.opinions.scores[column])
        return None if np.isnan(scores).all() else scores

    def decided(self, name: str) -> NDArray[np.int8]:
        """[n] what the run fills in for a class."""
        column = self.column(name)
        if column >= len(self.opinions.decided):
            return np.zeros(len(self.images), dtype=np.int8)
        return np.asarray(self.opinions.decided[column])

    @cached_property
    def suspects(self) -> dict[int, dict[int, int]]:
        """For each column, the rank of its suspect rows, counted from 1."""
        ranks: dict[int, dict[int, int]] = {}
        for rank, (row, column) in enumerate(self.opinions.suspects.tolist(), start=1):
            ranks.setdefault(column, {})[row] = rank
        return ranks

    @cached_property
    def image_keys(self) -> Keys:
        """[n] a random key per image."""
        return keys(self.images)

    def unknown_count(self, name: str) -> int:
        """Labels of a class that the file does not have."""
        column = self.column(name)
        if column >= len(self.table.classes):
            return len(self.images)
        _, values, starts = self._by_class
        return len(self.images) - int(np.count_nonzero(values[starts[column] : starts[column + 1]]))

    def suspect_count(self, name: str) -> int:
        """Labels of a class in the file that look wrong."""
        return len(self.suspects.get(self.column(name), {}))

    def known_cell(self, column: int, row: int) -> int:
        """The label of one cell in the file."""
        cells = self.table.cells
        start, end = int(cells.starts[row]), int(cells.starts[row + 1])
        position = start + int(np.searchsorted(cells.columns[start:end], column))
        is_stored = position < end and int(cells.columns[position]) == column
        return int(cells.values[position]) if is_stored else 0
