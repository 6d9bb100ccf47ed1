"""The result of a completion: the table, the evidence for it, and the files it is saved to."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.base.files import atomic_group
from partlabel.base.text_tables import html_table, text_table
from partlabel.judging.completion.assessment import Assessment
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.labels.formats import write_labels
from partlabel.labels.formats.delimited import write_delimited
from partlabel.metrics.guarantee import Basis

_WORDS = {PRESENT: "present", ABSENT: "absent"}
_DIGITS = {PRESENT: 1, ABSENT: 0}  # as in label files
_GUARANTEE_COLUMNS = [
    *("class", "value", "filled", "rests_on", "classes", "tested", "right"),
    *("counted_as", "at_least", "threshold"),
]
_SUSPECT_COLUMNS = ["image", "class", "value", "score", "trained_on", "asked"]


class Suspect(NamedTuple):
    """A known label that looks wrong, its calibrated score, and whether it was trained on."""

    image: str
    name: str
    value: int
    score: float
    trained: bool


class Group(NamedTuple):
    """Classes whose labels of one value rest on the same kind of test."""

    value: int
    basis: Basis
    classes: list[int]


@dataclass(frozen=True, repr=False)
class Completion:
    """A table with unknown labels filled in, and the evidence for them.

    Args:
        table: known labels as they were, filled ones with source ``model``; a calibrated score for
            each cell.
        filled: [C] number of unknown cells that became present, and absent.
        unknown: number of cells that were unknown before.
        suspects: known labels that look wrong, the least likely first.
        assessment: the test of the guarantee on held-out labels.
        notes: messages for the user, such as why labels are missing.
    """

    table: LabelTable
    filled: dict[int, NDArray[np.int64]]
    unknown: int
    suspects: list[Suspect]
    assessment: Assessment
    notes: list[str]

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
        return (
            f"{text} ({self.share:.1%}): {total[PRESENT]:,} present, {total[ABSENT]:,} absent. At "
            f"least {100 * self.precision:g}% of the labels like these are correct, with a "
            "confidence of 95% per line of the table"
        )

    def groups(self) -> Iterator[Group]:
        """The classes whose labels are filled in, by value and by the kind of test."""
        bases: tuple[Basis, ...] = ("class", "pooled")
        for value in _WORDS:
            guarantees = self.assessment.guarantees.of(value)
            for basis in bases:
                classes = [j for j, guarantee in enumerate(guarantees) if guarantee.basis == basis]
                if classes:
                    yield Group(value, basis, classes)

    def evidence(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows of a table: what is filled in, and how the test of it came out."""
        rows = []
        for value, basis, classes in self.groups():
            limits = [self.assessment.guarantees.of(value)[j].limit for j in classes]
            if basis == "pooled":
                limits = limits[:1]  # pooled classes share one test
            right, tested = (
                sum(limit.right for limit in limits),
                sum(limit.tested for limit in limits),
            )
            tests = "each class on its own" if basis == "class" else "all classes together"
            filled = int(self.filled[value][classes].sum())
            numbers = f"{len(classes):,}", f"{filled:,}", f"{right:,} of {tested:,}"
            rows.append([_WORDS[value], tests, *numbers])
        return ["labels", "tested", "classes", "filled in", "correct in the test"], rows

    def save(self, path: str | os.PathLike[str], format: str = "cells") -> list[Path]:
        """Write the table, and beside it the guarantees and the suspects; returns the paths.

        >>> [file.name for file in files_of("labels.csv")]
        ['labels.csv', 'labels.guarantees.csv', 'labels.suspects.csv']
        """
        paths = files_of(path)
        with atomic_group(paths) as (table, guarantees, suspects):
            write_labels(self.table, table, format, shown_as=path)
            self._write_guarantees(guarantees)
            self._write_suspects(suspects)
        return list(paths)

    def _write_guarantees(self, path: Path) -> None:
        """One line per value of each class: what is filled in, and how it was tested."""
        lines = []
        for value, basis, classes in self.groups():
            guarantees = self.assessment.guarantees.of(value)
            for j in classes:
                limit = guarantees[j].limit
                line = (
                    self.table.classes[j],
                    _DIGITS[value],
                    self.filled[value][j],
                    basis,
                    len(classes) if basis == "pooled" else 1,
                    limit.tested,
                    limit.right,
                    f"{limit.counted_as:.1f}",
                    f"{limit.precision:.4f}",
                    f"{expit(value * limit.threshold):.6g}",
                )
                lines.append(line)
        write_delimited(path, _GUARANTEE_COLUMNS, lines)

    def _write_suspects(self, path: Path) -> None:
        """One line per known label that looks wrong, the least likely first."""
        lines = [
            (
                suspect.image,
                suspect.name,
                _DIGITS[suspect.value],
                f"{suspect.score:.6g}",
                "yes" if suspect.trained else "no",
                "chosen",  # a verdict on a suspect is no random sample
            )
            for suspect in self.suspects
        ]
        write_delimited(path, _SUSPECT_COLUMNS, lines)


def files_of(path: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
    """The files that a completion is saved to: the table, the guarantees, the suspects."""
    table = Path(path)
    guarantees, suspects = (
        table.with_name(f"{table.stem}.{what}.csv") for what in ("guarantees", "suspects")
    )
    return table, guarantees, suspects
