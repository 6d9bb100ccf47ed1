"""The result of a completion: the table, the evidence for it, and the files it is saved to."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base import processes
from partlabel.base.files import atomic_group
from partlabel.base.text_tables import html_table, text_table
from partlabel.judging.completion.assessment import Assessment, Scope
from partlabel.judging.completion.completed_parts import Filling
from partlabel.judging.completion.doubts import Doubtful, Suspect
from partlabel.judging.completion.evidence_files import DIGITS, write_guarantees, write_origins
from partlabel.judging.completion.layout import PARTS
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.labels.formats import write_labels
from partlabel.labels.formats.delimited import write_delimited
from partlabel.labels.formats.formulas import quoted
from partlabel.labels.formats.parts import write_label_parts
from partlabel.metrics.sampling import Basis, Unit

_WORDS = {PRESENT: "present", ABSENT: "absent"}
_SUSPECT_COLUMNS = ["image", "class", "value", "score", "trained_on", "asked", "checked"]
_DOUBTFUL_COLUMNS = ["image", "class", "value", "score", "asked"]


class Group(NamedTuple):
    """Classes whose labels of one value rest on the same test, and how many are filled in."""

    value: int
    basis: Basis
    classes: list[int]
    scope: Scope
    filled: int

    @property
    def unit(self) -> Unit:
        """What was drawn at random."""
        return self.scope.guarantees.unit


@dataclass(frozen=True, repr=False)
class Completion:
    """Unknown labels filled in, and the evidence for them.

    Args:
        filling: fills in labels, block by block.
        filled: [C] number of unknown cells that became present, and absent.
        unknown: number of cells that were unknown before.
        suspects: known labels that look wrong, the least likely first.
        assessment: the test of the guarantee on held-out labels.
        notes: messages for the user, such as why labels are missing.
    """

    filling: Filling
    filled: dict[int, NDArray[np.int64]]
    unknown: int
    suspects: list[Suspect]
    assessment: Assessment
    notes: list[str]

    @cached_property
    def table(self) -> LabelTable:
        """Known labels as they were, filled ones with source ``model``, and calibrated scores.

        It is in memory. :meth:`save` does not need it, and writes labels of any number of images.
        """
        return self.filling.whole()

    @cached_property
    def doubtful(self) -> list[Doubtful]:
        """Unknown labels that are not filled in, the least certain ones first."""
        if not self.filling.is_done:
            for _ in self.filling.parts():
                pass
        return self.filling.doubtful.of(self.filling.table)

    @property
    def size(self) -> tuple[int, int, int]:
        """Numbers of images, of classes, and of labels that are known or filled in."""
        images, classes = len(self.filling.table), len(self.filling.classes)
        known = self.filling.known_labels() + sum(self.total.values())
        return images, classes, known

    @property
    def precision(self) -> float:
        """The precision that is guaranteed."""
        return self.assessment.precision

    @property
    def total(self) -> dict[int, int]:
        """The number of labels filled in as present, and as absent."""
        return {value: int(numbers.sum()) for value, numbers in self.filled.items()}

    @property
    def share(self) -> float:
        """The share of the unknown cells that are filled in."""
        return sum(self.total.values()) / max(self.unknown, 1)

    def __repr__(self) -> str:
        return f"<Completion: {self.headline()}>"

    def __str__(self) -> str:
        if not any(self.total.values()):
            return self.headline()
        return f"{self.headline()}\n{text_table(*self.evidence())}"

    def _repr_html_(self) -> str:
        text = f"<p>{escape(self.headline())}</p>"
        return text + (html_table(*self.evidence()) if any(self.total.values()) else "")

    def headline(self) -> str:
        """How much is filled in, and what is guaranteed of it."""
        total = self.total
        text = f"filled in {sum(total.values()):,} of {self.unknown:,} unknown labels"
        if not any(total.values()):
            return text
        units = {group.unit for group in self.groups()}
        which = "them" if units == {"cell"} else "the labels like these"
        return (
            f"{text} ({self.share:.1%}): {total[PRESENT]:,} present, {total[ABSENT]:,} absent. At "
            f"least {100 * self.precision:g}% of {which} are correct, with a confidence of 95% per "
            "line of the table"
        )

    def groups(self) -> Iterator[Group]:
        """The tests that labels rest on: of one class, or of several classes together."""
        for scope in self.assessment.scopes:
            decided = self.assessment.filled_by(scope)
            for value in _WORDS:
                guarantees, filled = scope.guarantees.of(value), decided[value]
                for pool in dict.fromkeys(one.pool for one in guarantees if one.basis):
                    basis = guarantees[pool[0]].basis
                    assert basis is not None
                    number = int(filled[list(pool)].sum())
                    yield Group(value, basis, list(pool), scope, number)

    def cells_of(self, group: Group) -> NDArray[np.bool_]:
        """[n, C] the labels of a group that are filled in; an array in memory."""
        parts = list(PARTS[group.unit])
        filled = np.zeros(self.filling.table.shape, dtype=np.bool_)
        for rows, _, values in self.assessment.blocks():
            inside = np.isin(self.assessment.material.layout.of(rows), parts)
            inside &= np.isin(np.arange(values.shape[1]), group.classes)
            filled[rows] = (values == group.value) & inside
        return filled

    def evidence(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows of a table: what is filled in, and how the test of it came out."""
        numbers: dict[tuple[int, Basis, Unit], NDArray[np.int64]] = {}
        for group in self.groups():
            limit = group.scope.guarantees.of(group.value)[group.classes[0]].limit
            row = np.array([len(group.classes), group.filled, limit.right, limit.tested])
            line = group.value, group.basis, group.unit
            numbers[line] = numbers.get(line, np.zeros(4, dtype=np.int64)) + row
        rows = []
        for (value, basis, unit), (classes, filled, right, tested) in numbers.items():
            tests = "each class on its own" if basis == "class" else "classes together"
            drawn = "labels" if unit == "cell" else "images"
            figures = f"{classes:,}", f"{filled:,}", f"{right:,} of {tested:,}"
            rows.append([_WORDS[value], tests, drawn, *figures])
        header = ["labels", "tested", "drawn by", "classes", "filled in", "correct in the test"]
        return header, rows

    @processes.together()
    def save(
        self, path: str | os.PathLike[str], format: str = "cells", *, excel_safe: bool = False
    ) -> list[Path]:
        """Write the table, and beside it the guarantees, suspects, doubtful labels and origins.

        Args:
            path: the file of the table.
            format: the format of the table.
            excel_safe: whether names in CSV files that a spreadsheet would run as formulas get an
                apostrophe.

        >>> [file.name for file in files_of("out.csv")][1:]
        ['out.guarantees.csv', 'out.suspects.csv', 'out.doubtful.csv', 'out.origins.csv']
        """
        paths = files_of(path)
        with atomic_group(paths) as (table, guarantees, suspects, doubtful, origins):
            self._write_table(table, format, path, excel_safe)
            names, filling = list(self.filling.classes), self.filling
            write_guarantees(self.assessment, names, guarantees, excel_safe=excel_safe)
            self._write_suspects(suspects, excel_safe)
            self._write_doubtful(doubtful, excel_safe)
            counted = filling.counted if filling.is_done else None
            write_origins(self.assessment, counted, origins, excel_safe=excel_safe)
        return list(paths)

    def _write_table(
        self, path: Path, format: str, shown_as: str | os.PathLike[str], excel_safe: bool
    ) -> None:
        """Write the labels, part by part if the format allows it and they are not in memory."""
        filling = self.filling
        if "table" not in vars(self) and write_label_parts(
            filling.header(), filling.parts(), path, format, excel_safe=excel_safe
        ):
            return
        write_labels(self.table, path, format, shown_as=shown_as, excel_safe=excel_safe)

    def _write_suspects(self, path: Path, excel_safe: bool) -> None:
        """One line per known label that looks wrong, the least likely first."""
        lines = [
            (
                quoted(suspect.image, excel_safe=excel_safe),
                quoted(suspect.name, excel_safe=excel_safe),
                DIGITS[suspect.value],
                f"{suspect.score:.6g}",
                "yes" if suspect.trained else "no",
                "chosen",  # a verdict on a suspect is not a random sample
                "",  # for those who check the list
            )
            for suspect in self.suspects
        ]
        write_delimited(path, _SUSPECT_COLUMNS, lines)

    def _write_doubtful(self, path: Path, excel_safe: bool) -> None:
        """One line per unknown label that is not filled in, the least certain first."""
        lines = [
            (
                quoted(one.image, excel_safe=excel_safe),
                quoted(one.name, excel_safe=excel_safe),
                "",
                f"{one.score:.6g}",
                "chosen",
            )
            for one in self.doubtful
        ]
        write_delimited(path, _DOUBTFUL_COLUMNS, lines)


def files_of(path: str | os.PathLike[str]) -> tuple[Path, Path, Path, Path, Path]:
    """The files of a completion: the table, guarantees, suspects, doubtful labels, origins."""
    table = Path(path)
    guarantees, suspects, doubtful, origins = (
        table.with_name(f"{table.stem}.{what}.csv")
        for what in ("guarantees", "suspects", "doubtful", "origins")
    )
    return table, guarantees, suspects, doubtful, origins
