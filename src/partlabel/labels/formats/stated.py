"""From what a file states, cell by cell, to a table: the part that all readers share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.labels import ABSENT, HUMAN, PRESENT, LabelTable, Names
from partlabel.labels.cells import from_triples
from partlabel.labels.combine import Combined, combine
from partlabel.labels.formats.source import Source

Integers = NDArray[Any]


@dataclass(frozen=True)
class Contradiction:
    """A cell that the file states as present in one place and as absent in another."""

    image: str
    label: str
    where: tuple[str, str]

    def __str__(self) -> str:
        one, other = self.where
        return (
            f"image '{self.image}', class '{self.label}': {one} and {other} contradict each other"
        )


@dataclass
class Notes:
    """What a reader noticed that the table cannot hold."""

    format: str = ""
    remarks: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """Images that the file describes more than once."""
    contradictions: list[Contradiction] = field(default_factory=list)
    uncertain: dict[str, int] = field(default_factory=dict)
    """Cells per class that someone looked at and could not decide (CheXpert's -1)."""


def numbered(records: Sequence[int]) -> list[str]:
    """Places in a file that has nothing better to call them by."""
    return [f"record {record + 1:,}" for record in records]


@dataclass
class Stated:
    """The cells of a file, in file order; a cell may come more than once.

    Args:
        images: the file's images, each once.
        classes: the file's classes, each once.
        image: [m] which image each cell is of.
        label: [m] which class each cell is of.
        value: [m] int8 in {-1, 0, 1}; 0 keeps ``unlisted`` from filling the cell.
        score: [m] float32 or None.
        source: [m] int8 or None.
        record: [m] which record of the file each cell stands in; None: cell i in record i.
        where: says where in the file records are, in one go.
        splits: a name per image, or None.
    """

    images: Names
    classes: Names
    image: Integers
    label: Integers
    value: NDArray[np.int8]
    score: NDArray[np.float32] | None = None
    source: NDArray[np.int8] | None = None
    record: Integers | None = None
    where: Callable[[Sequence[int]], list[str]] = numbered
    splits: Iterable[str] | None = None
    notes: Notes = field(default_factory=Notes)


def assemble(stated: Stated, unlisted: str | None, *, strict: bool) -> LabelTable:
    """Judge what was stated: join what agrees, refuse or forget what contradicts itself.

    Args:
        stated: the cells of a file.
        unlisted: ``"absent"`` makes every cell absent that the file does not mention.
        strict: whether a contradiction is an error; else both statements are forgotten.
    """
    s, shape = stated, (len(stated.images), len(stated.classes))
    place = s.image.astype(np.int64) * shape[1] + s.label
    value, score, source = s.value, s.score, s.source
    if len(place) > 1 and not (place[1:] > place[:-1]).all():
        met = combine(
            place,
            value,
            score if score is not None else np.full(len(place), np.nan, dtype=np.float32),
            source if source is not None else np.zeros(len(place), dtype=np.int8),
        )
        _note(s, met, strict=strict)
        place, value, score, source = met.cell, met.value, met.score, met.source
    if unlisted == "absent":
        silent = np.ones(shape[0] * shape[1], dtype=np.bool_)
        silent[place] = False
        fill = np.flatnonzero(silent)
        place = np.concatenate([place, fill])
        value = np.concatenate([value, np.full(len(fill), ABSENT, np.int8)])
        score = _extended(score, len(fill), np.nan)
        source = _extended(source, len(fill), HUMAN)
    rows, columns = np.divmod(place, max(shape[1], 1))
    cells = from_triples(rows, columns, value, shape, score, source)
    return LabelTable.from_cells(s.images, s.classes, cells, s.splits)


def _note(s: Stated, met: Combined, *, strict: bool) -> None:
    """Note which images were described twice and what contradicts itself; refuse it if strict."""
    spoken = np.add.reduceat(s.value[met.order] != 0, met.starts[:-1])
    known = set(s.notes.repeated)
    images = np.unique(met.cell[spoken > 1] // max(len(s.classes), 1))
    s.notes.repeated += [name for name in s.images.take(images) if name not in known]
    clashes = np.flatnonzero(met.clash)
    told = clashes[:1] if strict else clashes
    pairs = []
    for cell in told:
        said = met.order[met.starts[cell] : met.starts[cell + 1]]
        for sign in (PRESENT, ABSENT):
            at = int(said[s.value[said] == sign][0])
            pairs.append(at if s.record is None else int(s.record[at]))
    places = s.where(pairs)
    for number, cell in enumerate(told):
        row, column = divmod(int(met.cell[cell]), len(s.classes))
        where = (f"{places[2 * number]} (present)", f"{places[2 * number + 1]} (absent)")
        s.notes.contradictions.append(Contradiction(s.images[row], s.classes[column], where))
    if strict and len(clashes):
        more = f" ({len(clashes):,} such cells)" if len(clashes) > 1 else ""
        raise InputError(f"{s.notes.contradictions[0]}{more}; keep one of them")


def _extended(array: NDArray[Any] | None, extra: int, value: float) -> NDArray[Any] | None:
    if array is None:
        return None
    return np.concatenate([array, np.full(extra, value, dtype=array.dtype)])


def only_once(
    source: Source,
    kind: str,
    names: list[str],
    among: Iterable[int] | None = None,
    where: str = "",
) -> None:
    """Refuse a list of names in which one comes twice (among these positions)."""
    first: dict[str, int] = {}
    for at in range(len(names)) if among is None else among:
        if names[at] in first:
            places = f"{kind}s {first[names[at]] + 1:,} and {at + 1:,}"
            raise source.error(f"the {kind} '{names[at]}' is there twice ({places})", where)
        first[names[at]] = at
