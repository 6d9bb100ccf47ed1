"""From the statements in a file to a label table: the step that all readers share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.labels import ABSENT, PRESENT, LabelTable, Names
from partlabel.labels.cells import Details, concatenate, from_triples
from partlabel.labels.combine import Combined, Conflict, combine
from partlabel.labels.formats.source import Source

Integers = NDArray[Any]


@dataclass(frozen=True)
class Contradiction:
    """A label that is present according to one line of a file and absent according to another."""

    image: str
    label: str
    where: tuple[str, str]

    def __str__(self) -> str:
        present, absent = self.where
        return (
            f"image '{self.image}', class '{self.label}': "
            f"{present} and {absent} contradict each other"
        )


@dataclass
class Notes:
    """A reader's remarks about a file, which the table cannot hold."""

    format: str = ""
    remarks: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """Images that the file describes more than once."""
    contradictions: list[Contradiction] = field(default_factory=list)
    uncertain: dict[str, int] = field(default_factory=dict)
    """Number of labels per class that an annotator marked as uncertain (CheXpert's -1)."""
    names: dict[str, str] = field(default_factory=dict)
    """For each class of the file its name in the table, if the options rename any."""


def numbered(records: Sequence[int]) -> list[str]:
    """Locations in a file whose records have only numbers."""
    return [f"record {record + 1:,}" for record in records]


@dataclass
class Stated:
    """The statements of a file about cells, in file order; a cell may occur more than once.

    Args:
        images: the images of the file, each once.
        classes: the classes of the file, each once.
        image: [m] the position in ``images`` that each statement is about.
        label: [m] the position in ``classes`` that each statement is about.
        value: [m] int8 in {-1, 0, 1}; a cell stated as 0 is not filled by ``unlisted``.
        details: scores, sources, origins, and whether labels were asked for.
        record: [m] the record of the file that holds each statement; None if statement i is in
            record i.
        where: returns the locations of records in the file.
        splits: a name per image, or None.
        origins: the names of the origins in ``details``.
    """

    images: Names
    classes: Names
    image: Integers
    label: Integers
    value: NDArray[np.int8]
    details: Details = field(default_factory=Details)
    record: Integers | None = None
    where: Callable[[Sequence[int]], list[str]] = numbered
    splits: Iterable[str] | None = None
    origins: Iterable[str] = ()
    notes: Notes = field(default_factory=Notes)


def assemble(stated: Stated, unlisted: str | None, *, strict: bool) -> LabelTable:
    """Make a table from the statements of a file.

    Statements that agree become one.

    Args:
        stated: the statements.
        unlisted: ``"absent"`` makes every cell absent that the file does not mention.
        strict: whether a contradiction is an error; if not, the label becomes unknown.
    """
    stated = settle(stated, strict=strict)
    rows, columns, value, details = stated.image, stated.label, stated.value, stated.details
    shape = (len(stated.images), len(stated.classes))
    if unlisted == "absent":
        is_unlisted = np.ones(shape, dtype=np.bool_)
        is_unlisted[rows, columns] = False
        filled_rows, filled_columns = np.nonzero(is_unlisted)
        details = concatenate([details, Details()], [len(value), len(filled_rows)])
        rows = np.concatenate([rows, filled_rows])
        columns = np.concatenate([columns, filled_columns])
        value = np.concatenate([value, np.full(len(filled_rows), ABSENT, np.int8)])
    cells = from_triples(rows, columns, value, shape, details)
    return LabelTable.from_cells(
        stated.images, stated.classes, cells, stated.splits, stated.origins
    )


def settle(stated: Stated, *, strict: bool, conflict: Conflict = "error") -> Stated:
    """The statements with each cell once, in the order of the cells.

    Args:
        stated: the statements.
        strict: whether the rule ``"error"`` raises an error; if not, a label with a contradiction
            becomes unknown, and is noted.
        conflict: the rule for contradictions, as in :meth:`LabelTable.merge`.
    """
    width = len(stated.classes)
    cell = stated.image.astype(np.int64) * width + stated.label
    if len(cell) < 2 or (cell[1:] > cell[:-1]).all():
        return stated
    combined = combine(cell, stated.value, stated.details, conflict)
    _note_repeated(stated, combined)
    if conflict == "error":
        _note_contradictions(stated, combined, strict=strict)
    rows, columns = np.divmod(combined.cell, max(width, 1))
    record = combined.taken if stated.record is None else stated.record[combined.taken]
    return replace(
        stated,
        image=rows,
        label=columns,
        value=combined.value,
        details=combined.details,
        record=record,
    )


def _note_repeated(stated: Stated, combined: Combined) -> None:
    """Note the images with a label that is stated more than once."""
    has_value = stated.value[combined.order] != 0
    values_per_cell = np.add.reduceat(has_value, combined.starts[:-1])
    rows = np.unique(combined.cell[values_per_cell > 1] // max(len(stated.classes), 1))
    noted = set(stated.notes.repeated)
    stated.notes.repeated += [name for name in stated.images.take(rows) if name not in noted]


def _note_contradictions(stated: Stated, combined: Combined, *, strict: bool) -> None:
    """Note the contradictions; if ``strict``, raise an error for the first."""
    clashes = np.flatnonzero(combined.clash)
    reported = clashes[:1] if strict else clashes
    source = stated.details.filled("sources", len(stated.value))
    records = []  # two per contradiction: one that says present, one that says absent
    for clash in reported:
        statements = combined.order[combined.starts[clash] : combined.starts[clash + 1]]
        # where humans disagree, the statements of models do not count
        statements = statements[source[statements] == source[combined.taken[clash]]]
        for value in (PRESENT, ABSENT):
            first = int(statements[stated.value[statements] == value][0])
            records.append(first if stated.record is None else int(stated.record[first]))
    locations = stated.where(records)
    for number, clash in enumerate(reported):
        row, column = divmod(int(combined.cell[clash]), len(stated.classes))
        present, absent = locations[2 * number : 2 * number + 2]
        where = (f"{present} (present)", f"{absent} (absent)")
        stated.notes.contradictions.append(
            Contradiction(stated.images[row], stated.classes[column], where)
        )
    if strict and len(clashes):
        more = f" ({len(clashes):,} such labels)" if len(clashes) > 1 else ""
        raise InputError(f"{stated.notes.contradictions[0]}{more}; keep one of them")


def only_once(
    source: Source,
    kind: str,
    names: list[str],
    among: Iterable[int] | None = None,
    where: str = "",
) -> None:
    """Raise an error if a name occurs twice, in all of ``names`` or among these positions."""
    first: dict[str, int] = {}
    for position in range(len(names)) if among is None else among:
        name = names[position]
        if name in first:
            positions = f"{kind}s {first[name] + 1:,} and {position + 1:,}"
            raise source.error(f"the {kind} '{name}' occurs twice ({positions})", where)
        first[name] = position
