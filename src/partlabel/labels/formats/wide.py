"""Formats with a row an image and a column a class: ``csv`` and ``chexpert``."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from partlabel.base.errors import InputError
from partlabel.labels import LabelTable, Names
from partlabel.labels.formats.delimited import (
    ABSENT_OR_PRESENT,
    DIGITS,
    Delimited,
    read_delimited,
    write_delimited,
)
from partlabel.labels.formats.format import Format, drops_scores, drops_splits
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Notes, Stated, only_once

_OTHER_NAMES = ("filename", "file", "path", "photo", "picture")  # of the column ``image``
_HINT = (
    "write 1 or yes (present), 0 or no (absent), or leave the cell empty (unknown); "
    "if the column is no class, take it out"
)


class Csv(Format):
    """``image,[split,]class...`` with 1 present, 0 absent, empty unknown."""

    name = "csv"
    suffixes = (".csv", ".tsv")
    lists_every_cell = True

    def matches(self, source: Source) -> bool:
        """The first column is called image; or so, and then all others must hold labels."""
        if source.kind != "text" or len(source.header) < 2:
            return False
        first, *others = source.header
        if others in (["class"], ["label"], ["tags"]):  # a row a label: not this format
            return False
        is_long = {"class", "value"} <= set(others)
        if first.lower() == "image":
            return not is_long or _words(source, others) <= set(DIGITS)
        if first.lower() not in _OTHER_NAMES or first == "Path" or is_long:  # as chexpert has it
            return False
        words = _words(source, [name for name in others if name != "split"])
        return words <= set(ABSENT_OR_PRESENT) and any(ABSENT_OR_PRESENT[word] for word in words)

    def read(self, source: Source) -> Stated:
        """The first column is the image, whatever it is called."""
        text = read_delimited(source)
        split = text.header.index("split") if "split" in text.header[1:] else None
        columns = [i for i in range(1, len(text.header)) if i != split]
        stated = read_wide(text, 0, columns, ABSENT_OR_PRESENT, _HINT)
        if split is not None:
            stated.splits = splits_of(text, 0, split, stated)
        return stated

    def write(self, table: LabelTable, path: Path) -> None:
        """Splits get a column of their own if there are any."""
        need_classes(table)
        header, splits = ["image"], None
        if table.splits is not None or "split" in table.classes:
            header, splits = ["image", "split"], table.splits or [""] * len(table)
        rows = wide_rows(table, {1: "1", -1: "0", 0: ""})
        if splits is None:
            records: Iterator[list[str]] = rows
        else:
            records = ([row[0], name, *row[1:]] for row, name in zip(rows, splits, strict=True))
        write_delimited(path, [*header, *table.classes], records)

    def drops(self, table: LabelTable) -> list[str]:
        """Values alone."""
        return drops_scores(table)


class CheXpert(Format):
    """``Path,...`` with 1.0 present, 0.0 absent, and -1.0 (uncertain) or blank unknown."""

    name = "chexpert"
    lists_every_cell = True
    about_the_picture = ("Sex", "Age", "Frontal/Lateral", "AP/PA")

    def matches(self, source: Source) -> bool:
        """The first column is called Path."""
        return source.kind == "text" and source.header[0] == "Path" and len(source.header) > 1

    def read(self, source: Source) -> Stated:
        """Counts the uncertain cells of each class apart."""
        text = read_delimited(source)
        columns = [
            i for i, name in enumerate(text.header) if i and name not in self.about_the_picture
        ]
        hint = "write 1.0 (present), 0.0 (absent), -1.0 (uncertain) or leave the cell empty"
        meaning = {**ABSENT_OR_PRESENT, "-1.0": 0, "-1": 0}
        stated = read_wide(text, 0, columns, meaning, hint)
        for column in columns:
            codes = [i for i, value in enumerate(text.values(column)) if value.strip()[:1] == "-"]
            uncertain = int(np.isin(text.codes(column), codes).sum())
            if uncertain:
                stated.notes.uncertain[text.header[column]] = uncertain
        return stated

    def write(self, table: LabelTable, path: Path) -> None:
        """Unknown cells stay blank."""
        need_classes(table)
        rows = wide_rows(table, {1: "1.0", -1: "0.0", 0: ""})
        write_delimited(path, ["Path", *table.classes], rows)

    def drops(self, table: LabelTable) -> list[str]:
        """Values alone, and no splits."""
        meta = [name for name in self.about_the_picture if name in table.classes]
        if meta:
            raise InputError(f"the chexpert format keeps the column '{meta[0]}' for another use")
        return drops_scores(table) + drops_splits(table)


def need_classes(table: LabelTable) -> None:
    """Refuse a table without classes, whose file no reader could tell from another."""
    if not len(table.classes):
        raise InputError("a table without classes cannot be written in this format")


def sample(source: Source, most: int = 50) -> list[list[str]]:
    """The first records after the header."""
    records = []
    for number, (_, fields) in enumerate(source.records()):
        if number > most:
            break
        if number:
            records.append(fields)
    return records


def _words(source: Source, columns: list[str]) -> set[str]:
    """What the first records have in these columns."""
    at = [source.header.index(name) for name in columns]
    return {row[i].strip() for row in sample(source) for i in at if i < len(row)}


def read_wide(
    text: Delimited, image: int, columns: list[int], meaning: dict[str, int], hint: str
) -> Stated:
    """A row an image: the column ``image`` names it, ``columns`` hold its labels."""
    classes = [text.header[i] for i in columns]
    if "" in classes:
        number = columns[classes.index("")] + 1
        raise text.source.error(f"column {number:,} has no name", "line 1")
    if not classes:
        raise text.source.error("no column holds labels; the header needs a column per class")
    only_once(text.source, "column", text.header, columns, "line 1")
    text.check_all(columns, meaning, hint)
    text.refuse(image, {""}, "an image needs a name")
    codes = text.codes(image)
    matrix = np.empty((len(text), len(columns)), dtype=np.int8)
    for j, column in enumerate(columns):
        matrix[:, j] = text.map(column, meaning, hint)
    record, label = np.nonzero(matrix)
    images, notes = Names(text.columns[image].dictionary), Notes()
    times = np.bincount(codes, minlength=len(images))
    notes.repeated = list(images.take(np.flatnonzero(times > 1)))
    return Stated(
        images,
        Names(classes),
        codes[record],
        label,
        matrix[record, label],
        record=record,
        where=text.lines,
        notes=notes,
    )


def wide_rows(table: LabelTable, words: dict[int, str]) -> Iterator[list[str]]:
    """For each image its id and a word per class."""
    chunk = max(1, 10_000_000 // max(len(table.classes), 1))
    for start in range(0, len(table), chunk):
        rows = np.arange(start, min(start + chunk, len(table)))
        for name, labels in zip(table.ids.take(rows), table.dense(rows).tolist(), strict=True):
            yield [name, *(words[value] for value in labels)]


def splits_of(text: Delimited, image: int, split: int, stated: Stated) -> Names:
    """The split of each image, from a column; one image in two splits is an error."""
    images, codes = text.codes(image), text.codes(split)
    chosen = np.zeros(len(stated.images), dtype=np.int64)
    chosen[images] = codes
    other = np.flatnonzero(chosen[images] != codes)
    if len(other):
        name = stated.images[int(images[other[0]])]
        raise text.source.error(f"image '{name}' is in two splits", text.line(int(other[0])))
    return Names(text.columns[split].dictionary).take(chosen)
