"""The formats with one row per image and one column per class: ``csv`` and ``chexpert``."""

from collections.abc import Iterator
from itertools import islice
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
from partlabel.labels.formats.reading_options import quote_names
from partlabel.labels.formats.restriction import require_classes
from partlabel.labels.formats.source import Source, image_column
from partlabel.labels.formats.stated import Notes, Stated, only_once
from partlabel.labels.formats.tag_tables import SEPARATORS, tag_table

_SAMPLED_RECORDS = 50
_HINT = "write 1 or yes (present), 0 or no (absent), or leave the cell empty (unknown)"


class Csv(Format):
    """``image,[split,]class...`` with 1 for present, 0 for absent, empty for unknown."""

    name = "csv"
    suffixes = (".csv", ".tsv")
    lists_every_cell = True

    def matches(self, source: Source) -> bool:
        """Whether the first column is ``image``, or has a similar name and another holds labels.

        A table with columns ``class`` and ``value`` may be of the format ``cells`` instead.
        """
        if source.kind != "text" or len(source.header) < 2:
            return False
        first, *others = source.header
        table = tag_table(source)
        if table is not None:
            return table.image == 0 and table.may_be_wide and first != "Path"
        may_be_cells = {"class", "value"} <= set(others)
        if first.lower() == "image":
            return not may_be_cells or first_values(source, others) <= set(DIGITS)
        if first in ("Path", "file_name") or image_column(source.header) != 0 or may_be_cells:
            return False  # of the formats chexpert and hf
        words = first_words(source)
        return any(holds_labels(words[name]) for name in others if name != "split")

    def read(self, source: Source) -> Stated:
        """The labels of each image; the first column is the image, whatever its name."""
        text = read_delimited(source)
        split = text.header.index("split") if "split" in text.header[1:] else None
        columns = [i for i in range(1, len(text.header)) if i != split]
        stated = read_wide(text, 0, columns, ABSENT_OR_PRESENT, _HINT)
        if split is not None:
            stated.splits = splits_of(text, 0, split, stated)
        return stated

    def write(self, table: LabelTable, path: Path) -> None:
        """Write one column per class, and a column ``split`` if the table has splits."""
        need_classes(table)
        rows = wide_rows(table, {1: "1", -1: "0", 0: ""})
        # the reader takes the first column called split for the splits, so a class of this name
        # needs a column of splits before it
        if table.splits is None and "split" not in table.classes:
            write_delimited(path, ["image", *table.classes], rows)
            return
        splits = table.splits or [""] * len(table)
        records = ([row[0], split, *row[1:]] for row, split in zip(rows, splits, strict=True))
        write_delimited(path, ["image", "split", *table.classes], records)

    def writes_text_table(self, path: Path) -> bool:
        """Always."""
        return True

    def drops(self, table: LabelTable) -> list[str]:
        """Scores."""
        return drops_scores(table)


class CheXpert(Format):
    """``Path,class...`` with 1.0 for present and 0.0 for absent.

    Unknown is -1.0 (uncertain) or empty. Some columns describe the patient and the X-ray; they are
    not classes.
    """

    name = "chexpert"
    lists_every_cell = True
    other_columns = ("Sex", "Age", "Frontal/Lateral", "AP/PA")

    def matches(self, source: Source) -> bool:
        """Whether the first column is ``Path``."""
        return source.kind == "text" and source.header[0] == "Path" and len(source.header) > 1

    def read(self, source: Source) -> Stated:
        """The labels of each image; the notes count the uncertain labels per class."""
        text = read_delimited(source)
        columns = [i for i, name in enumerate(text.header) if i and name not in self.other_columns]
        hint = "write 1.0 (present), 0.0 (absent), -1.0 (uncertain) or leave the cell empty"
        meaning = {**ABSENT_OR_PRESENT, "-1.0": 0, "-1": 0}
        stated = read_wide(text, 0, columns, meaning, hint)
        for column in columns:
            values = text.values(column)
            negative = [code for code, value in enumerate(values) if value.strip().startswith("-")]
            uncertain = int(np.isin(text.codes(column), negative).sum())
            if uncertain:
                stated.notes.uncertain[text.header[column]] = uncertain
        return stated

    def write(self, table: LabelTable, path: Path) -> None:
        """Write one column per class; unknown labels are empty."""
        need_classes(table)
        rows = wide_rows(table, {1: "1.0", -1: "0.0", 0: ""})
        write_delimited(path, ["Path", *table.classes], rows)

    def writes_text_table(self, path: Path) -> bool:
        """Always."""
        return True

    def drops(self, table: LabelTable) -> list[str]:
        """Scores and splits."""
        reserved = [name for name in self.other_columns if name in table.classes]
        if reserved:
            raise InputError(
                f"no class can be called '{reserved[0]}' in the chexpert format, where the column "
                "of this name is not a class"
            )
        return drops_scores(table) + drops_splits(table)


def need_classes(table: LabelTable) -> None:
    """Raise an error for a table without classes; the format of its file could not be detected."""
    if not len(table.classes):
        raise InputError("a table without classes cannot be written in this format")


def first_words(source: Source) -> dict[str, set[str]]:
    """The words in each column of the first records; of columns of one name, those in the first."""
    records = islice(source.records(), 1, 1 + _SAMPLED_RECORDS)  # without the header
    words: list[set[str]] = [set() for _ in source.all_columns]
    for _, fields in records:
        for column, field in zip(words, fields, strict=False):
            column.add(field.strip())
    pairs = zip(source.all_columns, words, strict=True)
    return dict(reversed([(name, column) for name, column in pairs if name in source.header]))


def first_values(source: Source, columns: list[str]) -> set[str]:
    """The values in these columns of the first records."""
    words = first_words(source)
    return set().union(*(words[name] for name in columns))


def holds_labels(words: set[str]) -> bool:
    """Whether all words are words for labels, and some of them for known labels."""
    meanings = {ABSENT_OR_PRESENT.get(word) for word in words}
    return None not in meanings and bool(meanings - {0})


def read_wide(
    text: Delimited, image: int, columns: list[int], meaning: dict[str, int], hint: str
) -> Stated:
    """Read a table with one row per image.

    Only the classes that the options ask for are looked at.

    Args:
        text: the table.
        image: the column with the names of the images.
        columns: the columns with labels.
        meaning: the value that each allowed text stands for.
        hint: the end of the error message for other texts.
    """
    only, source = text.source.options.only_classes, text.source
    require_classes(source.options, [text.header[i] for i in columns])
    asked = source.options.asked_for([text.header[i] for i in columns])
    columns = [i for i, is_asked in zip(columns, asked, strict=True) if is_asked]
    classes = [text.header[i] for i in columns]
    if "" in classes:
        number = columns[classes.index("")] + 1
        raise source.error(f"column {number:,} has no name", source.line(1))
    if not classes and not only:
        raise source.error("no column holds labels; the header needs one column per class")
    only_once(source, "column", text.header, columns, source.line(1))
    text.require_known(columns, meaning, hint + _proposal(text, columns, meaning))
    text.reject(image, {""}, "an image needs a name")
    rows = text.codes(image)
    matrix = np.empty((len(text), len(columns)), dtype=np.int8)
    for j, column in enumerate(columns):
        matrix[:, j] = text.map(column, meaning, hint)
    record, label = np.nonzero(matrix)
    images, notes = Names(text.columns[image].dictionary), Notes()
    records_per_image = np.bincount(rows, minlength=len(images))
    notes.repeated = list(images.take(np.flatnonzero(records_per_image > 1)))
    return Stated(
        images,
        Names(classes),
        rows[record],
        label,
        matrix[record, label],
        record=record,
        where=text.lines,
        notes=notes,
    )


def _proposal(text: Delimited, columns: list[int], meaning: dict[str, int]) -> str:
    """The option that leaves out the columns that hold something other than labels."""
    no_classes = []
    for column in columns:
        words = [value.strip() for value in text.values(column)]
        if any(words) and not any(word in meaning for word in words if word):
            no_classes.append(text.header[column])
    if not no_classes:
        return "; if the column is not a class, leave it out with --ignore-columns"
    if len(no_classes) == len(columns) > 1:
        return "; if these columns hold tags, write one row per tag, with the columns image,tag"
    if len(no_classes) == len(columns):
        lists = any(mark in word for word in text.values(columns[0]) for mark in SEPARATORS)
        name = "tags" if lists else "tag"
        return f"; if the column holds tags, call it '{name}' instead of '{no_classes[0]}'"
    names = quote_names(no_classes)
    return f"; columns that are no classes are left out with --ignore-columns {names}"


def wide_rows(table: LabelTable, words: dict[int, str]) -> Iterator[list[str]]:
    """For each image its id and one word per class."""
    chunk = max(1, 10_000_000 // max(len(table.classes), 1))
    for start in range(0, len(table), chunk):
        rows = np.arange(start, min(start + chunk, len(table)))
        for name, labels in zip(table.ids.take(rows), table.dense(rows).tolist(), strict=True):
            yield [name, *(words[value] for value in labels)]


def splits_of(text: Delimited, image: int, split: int, stated: Stated) -> Names:
    """The split of each image, from a column; an image in two splits is an error."""
    images, codes = text.codes(image), text.codes(split)
    code_of_image = np.zeros(len(stated.images), dtype=np.int64)
    code_of_image[images] = codes
    clashes = np.flatnonzero(code_of_image[images] != codes)
    if len(clashes):
        record = int(clashes[0])
        name = stated.images[int(images[record])]
        raise text.source.error(f"image '{name}' is in two splits", text.line(record))
    return Names(text.columns[split].dictionary).take(code_of_image)
