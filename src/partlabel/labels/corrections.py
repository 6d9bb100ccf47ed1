"""Corrections: later statements of humans replace labels; and labels that become unknown."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError, count, one_of, some
from partlabel.labels.cells import CHOSEN, CONFIRMED, HUMAN, MODEL, Cells
from partlabel.labels.formats.cell_list import ASKED, CellList, checked_rows
from partlabel.labels.formats.delimited import read_delimited
from partlabel.labels.formats.parquet import read_parquet
from partlabel.labels.formats.reading_options import ReadOptions
from partlabel.labels.formats.source import Source
from partlabel.labels.merge import merge
from partlabel.labels.names import Names
from partlabel.labels.table import LabelTable

_WORDS = {1: "1", -1: "0", 0: ""}
_SOURCES = ("human", "model")
_SAME_SCORE = 1e-3

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Change:
    """A label that was replaced: image and class, what it was, and what it is now."""

    image: str
    name: str
    old: tuple[str, str, str, str]
    """Value, source, origin and ``asked``, as in a file of the format ``cells``."""
    new: tuple[str, str, str]
    """Value, source and origin."""


@dataclass(frozen=True)
class Corrected:
    """A corrected table.

    Args:
        table: the table.
        changes: labels that were replaced, or became unknown.
        added: number of labels that were unknown before.
        confirmed: number of labels of a model that a human confirmed.
        ignored: number of a model's labels that contradict a human's, and were ignored.
        kept: number of labels of a human that a human confirmed, because a model asked.
        empty: number of known labels that the corrections have an empty field for.
    """

    table: LabelTable
    changes: list[Change]
    added: int
    confirmed: int
    ignored: int
    kept: int
    empty: int = 0

    def __str__(self) -> str:
        kinds = [(change.old[0], change.new[0]) for change in self.changes]
        numbers = {
            "present became absent": kinds.count(("1", "0")),
            "absent became present": kinds.count(("0", "1")),
            "became unknown": sum(new == "" for _, new in kinds),
            "were unknown": self.added,
            "of a model were confirmed": self.confirmed,
            "were confirmed as they are": self.kept,
            "of a model contradict a human's and were ignored": self.ignored,
        }
        parts = [f"{number:,} {what}" for what, number in numbers.items() if number]
        text = "corrected labels: " + (", ".join(parts) or "none")
        if self.empty:
            text += (
                f"; kept because the field is empty here: {count(self.empty, 'label')} (to make "
                "labels unknown, use a file with the columns image,class,value)"
            )
        return text


class Verdicts(NamedTuple):
    """What a file says about cells (row * classes + column) beside the values that it gives.

    Args:
        emptied: they become unknown.
        checked: somebody looked at them because a model asked; those that have the value that the
            file gives are confirmed.
    """

    emptied: Positions
    checked: Positions


def correct(table: LabelTable, later: LabelTable, verdicts: Verdicts | None = None) -> Corrected:
    """Replace labels by later ones; a model's label never replaces a human's.

    Args:
        table: the table to correct.
        later: the corrections, about images and classes of ``table``.
        verdicts: more that the file of the corrections says.
    """
    cells, pairs = table.cells, _pair(table, later)
    news = _by_hand(later.cells, pairs)
    by_model = news.sources_or_human() == MODEL
    ignored = by_model & (pairs.old_sources != MODEL) & (pairs.old_values != 0)
    effective = (news.values != 0) & ~ignored
    replaced = effective & (news.values * pairs.old_values < 0)
    confirmed = effective & (news.values == pairs.old_values)
    confirmed &= ~by_model & (pairs.old_sources == MODEL)
    cleared = kept = np.zeros(0, dtype=np.int64)
    if verdicts is not None:
        cleared = np.unique(_lookup(_flat_index(table), verdicts.emptied))
        cleared = cleared[np.append(cells.values, 0)[cleared] != 0]
        cleared = np.setdiff1d(cleared, pairs.position[effective])
        agreeing = effective & (news.values == pairs.old_values) & (pairs.old_sources != MODEL)
        kept = np.intersect1d(
            pairs.position[agreeing & ~by_model], _lookup(_flat_index(table), verdicts.checked)
        )
    gone = np.concatenate([pairs.position[replaced], cleared])
    if cells.scores is None:
        news = news.with_details(scores=None)  # of lists to check, such as suspects
    accepted = later.with_cells(news.where(~ignored).tidy())
    changes = [
        *_changes(table, pairs.position[replaced], later, np.flatnonzero(replaced)),
        *_changes(table, cleared),
    ]
    corrected = merge([_without_values(_marked(table, kept), gone), accepted], "ours")
    return Corrected(
        corrected,
        changes,
        int((effective & (pairs.old_values == 0)).sum()),
        int(confirmed.sum()),
        int((ignored & (news.values * pairs.old_values < 0)).sum()),
        len(kept),
    )


def empty_fields(table: LabelTable, later: LabelTable) -> int:
    """Number of known labels of images and classes of the corrections about which they are silent.

    In a file with a field for each label, these fields are empty.
    """
    cells, width = table.cells, len(table.classes)
    in_later = later.ids.find(table.ids)[cells.rows] >= 0
    in_later &= later.classes.find(table.classes)[cells.columns] >= 0
    known = _flat_index(table)[in_later & (cells.values != 0)]
    rows, columns = table.ids.find(later.ids), table.classes.find(later.classes)
    is_stated = later.cells.values != 0
    stated = (rows[later.cells.rows] * width + columns[later.cells.columns])[is_stated]
    return int(np.count_nonzero(~np.isin(known, stated)))


class _Pairs(NamedTuple):
    """For each cell of the corrections the position, value, source and score of the earlier cell.

    Where there is none, the position is -1 and the value 0.
    """

    position: Positions
    old_values: NDArray[np.int8]
    old_sources: NDArray[np.int8]
    old_scores: NDArray[np.float32]


def _pair(table: LabelTable, later: LabelTable) -> _Pairs:
    rows = _find("image", table.ids, later.ids)
    columns = _find("class", table.classes, later.classes)
    index = rows[later.cells.rows] * len(table.classes) + columns[later.cells.columns]
    position = _lookup(_flat_index(table), index)
    return _Pairs(
        position,
        np.append(table.cells.values, 0).astype(np.int8)[position],
        np.append(table.cells.sources_or_human(), MODEL).astype(np.int8)[position],
        np.append(table.cells.scores_or_nan(), np.nan).astype(np.float32)[position],
    )


def _by_hand(news: Cells, pairs: _Pairs) -> Cells:
    """The corrections, with labels of a model that somebody changed as labels of a human.

    In a completed table that was edited, such a label has another value than before, but the same
    score. Spreadsheets may round it.
    """
    same_score = np.abs(news.scores_or_nan() - pairs.old_scores) < _SAME_SCORE
    changed = (news.values * pairs.old_values < 0) & same_score
    changed &= (news.sources_or_human() == MODEL) & (pairs.old_sources == MODEL)
    if not changed.any():
        return news
    sources = np.where(changed, HUMAN, news.sources_or_human()).astype(np.int8)
    asked = np.where(changed, CHOSEN, news.asked_or_not()).astype(np.int8)
    return news.with_details(sources=sources, asked=asked)


def _without_values(table: LabelTable, positions: Positions) -> LabelTable:
    """The table with the cells at these positions unknown; they keep their scores."""
    values = np.array(table.cells.values)
    values[positions] = 0
    return table.with_cells(replace(table.cells, values=values).tidy())


def _marked(table: LabelTable, positions: Positions) -> LabelTable:
    """The table with the cells at these positions confirmed.

    Those that a model chose stay so: they are not a random sample, whoever confirms them.
    """
    asked = np.array(table.cells.asked_or_not())
    positions = positions[asked[positions] != CHOSEN]
    if not len(positions):
        return table
    asked[positions] = CONFIRMED
    return table.with_cells(table.cells.with_details(asked=asked))


def _flat_index(table: LabelTable) -> Positions:
    """[m] row * classes + column of each cell, ascending."""
    return table.cells.rows * len(table.classes) + table.cells.columns


def _find(kind: str, names: Names, wanted: Names) -> Positions:
    """The positions of names; a correction of something that does not exist is an error."""
    positions = names.find(wanted)
    missing = list(wanted.take(np.flatnonzero(positions < 0)))
    if missing and kind == "class":
        one_of(kind, missing[0], names)
    if missing:
        raise InputError(
            f"the corrections have {count(len(missing), 'image')} that the labels lack: "
            f"{some(missing)}; correct the names, or merge without --corrections to add images"
        )
    return positions


def _lookup(stated: Positions, index: Positions) -> Positions:
    """The position of each index in the ascending ``stated``, -1 if it is missing."""
    if not len(stated):
        return np.full(len(index), -1)
    at = np.minimum(np.searchsorted(stated, index), len(stated) - 1)
    return np.where(stated[at] == index, at, -1)


def _changes(
    table: LabelTable,
    cells: Positions,
    later: LabelTable | None = None,
    new_cells: Positions | None = None,
) -> Iterator[Change]:
    """The changes of these cells; those of ``later`` replace them, or nothing does."""
    rows, columns = table.cells.rows[cells].tolist(), table.cells.columns[cells].tolist()
    olds = _described(table, cells)
    news = [("", "", "", "")] * len(cells)
    if later is not None and new_cells is not None:
        news = _described(later, new_cells)
    for row, column, old, new in zip(rows, columns, olds, news, strict=True):
        yield Change(table.ids[row], table.classes[column], old, new[:3])


def _described(table: LabelTable, positions: Positions) -> list[tuple[str, str, str, str]]:
    """Value, source, origin and ``asked`` of cells, as words."""
    cells, origins, asked = table.cells, ["", *table.origins], list(ASKED)
    columns = (
        cells.values[positions].tolist(),
        cells.sources_or_human()[positions].tolist(),
        cells.origins_or_none()[positions].tolist(),
        cells.asked_or_not()[positions].tolist(),
    )
    return [
        (_WORDS[value], _SOURCES[source], origins[origin], asked[kind])
        for value, source, origin, kind in zip(*columns, strict=True)
    ]


def read_verdicts(
    path: str | os.PathLike[str],
    table: LabelTable,
    class_names: Mapping[str, str],
    image_names: Mapping[str, str],
    options: ReadOptions | None = None,
) -> Verdicts:
    """What a file of the format ``cells`` says about cells of ``table``, beside their values.

    A row of a model about a label of a human is left out.

    Args:
        path: the file.
        table: the labels to correct.
        class_names: new names of classes of the file.
        image_names: new names of images of the file.
        options: how to read the file.
    """
    source = Source(path, options)
    stated = CellList().read(source)
    images = Names([image_names.get(name, name) for name in stated.images])
    classes = Names([class_names.get(name, name) for name in stated.classes])
    rows = table.ids.find(images)[stated.image]
    columns = table.classes.find(classes)[stated.label]
    index = rows * len(table.classes) + columns
    by_model = stated.details.filled("sources", len(stated.value)) == MODEL
    old_sources = np.append(table.cells.sources_or_human(), MODEL)
    of_human = old_sources[_lookup(_flat_index(table), index)] != MODEL
    counts = (rows >= 0) & (columns >= 0) & ~(by_model & of_human)
    checked = counts & (stated.value != 0) & checked_rows(source, stated)
    return Verdicts(index[counts & (stated.value == 0)], index[checked])


def set_unknown(table: LabelTable, path: str | os.PathLike[str]) -> tuple[LabelTable, int, int]:
    """Make the labels unknown that a file with the columns ``image`` and ``class`` lists.

    Returns:
        The table, the number of labels that became unknown, and the number of rows about images
        that the table lacks.
    """
    source = Source(path)
    text = read_parquet(source) if source.kind == "parquet" else read_delimited(source)
    image, label = text.column("image"), text.column("class")
    classes = Names([name.strip() for name in text.values(label)])
    columns = table.classes.find(classes)
    for name in classes.take(np.flatnonzero(columns < 0)):
        try:
            one_of("class", name, table.classes)
        except InputError as error:
            raise source.error(str(error)) from None
    rows = table.ids.find(Names(text.columns[image].dictionary))[text.codes(image)]
    missing = rows < 0
    if len(rows) and missing.all():
        raise source.error("names no image of the labels; are the file names the same?")
    index = (rows * len(table.classes) + columns[text.codes(label)])[~missing]
    position = np.unique(_lookup(_flat_index(table), index))
    position = position[position >= 0]
    changed = int(np.count_nonzero(table.cells.values[position]))
    return _without_values(table, position), changed, int(missing.sum())
