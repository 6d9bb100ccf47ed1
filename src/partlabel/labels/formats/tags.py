"""The ``tags`` format: one row per image and tag."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from partlabel.base.errors import some
from partlabel.labels import PRESENT, LabelTable, Names
from partlabel.labels.formats.delimited import Delimited, write_delimited
from partlabel.labels.formats.format import (
    Format,
    drops_absent,
    drops_order,
    drops_scores,
    drops_without_entries,
)
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Notes, Stated
from partlabel.labels.formats.tag_tables import tag_table
from partlabel.labels.formats.wide import splits_of


class Tags(Format):
    """``image,[split,]tag``, with several rows for an image with several tags.

    A row without a tag names an image without tags. Other columns are ignored.
    """

    name = "tags"
    lists_only_present = True
    has_free_names = True

    def matches(self, source: Source) -> bool:
        """Whether there is a column of images and one of tags, and no cell holds a list."""
        table = tag_table(source)
        if table is None or table.is_wide:
            return False
        return "tags" in table.kinds

    def read(self, source: Source) -> Stated:
        """One statement per row with a tag."""
        table = tag_table(source, forced=True)
        assert table is not None
        text, notes = table.text, Notes()
        text.reject(table.image, {""}, "an image needs a name")
        tags = Tagging.of_names(text.columns[table.tag].dictionary)
        notes.remarks += tags.remarks() + ignored_columns(text, table.others)
        label = tags.label[text.codes(table.tag)]
        record = np.flatnonzero(label >= 0)
        stated = Stated(
            Names(text.columns[table.image].dictionary),
            Names(tags.classes),
            text.codes(table.image)[record],
            label[record],
            np.full(len(record), PRESENT, dtype=np.int8),
            record=record,
            where=text.lines,
            notes=notes,
        )
        if table.split is not None:
            stated.splits = splits_of(text, table.image, table.split, stated)
        return stated

    def write(self, table: LabelTable, path: Path) -> None:
        """Write one row per present class, and one for an image without any."""
        header = ["image", *(["split"] if table.splits is not None else []), "tag"]
        write_delimited(path, header, _rows(table))

    def writes_text_table(self, path: Path) -> bool:
        """Always."""
        return True

    def drops(self, table: LabelTable) -> list[str]:
        """Absent labels, scores, classes that are never present, and the order of the classes."""
        return drops_of_tags(table)


class Tagging:
    """Distinct texts of a file as classes: blanks around them do not count.

    Attributes:
        classes: the classes, sorted by name.
        label: [n] for each text the position of its class, -1 for a blank one.
    """

    def __init__(self, classes: pa.Array, label: NDArray[np.int64], stripped: list[str]) -> None:
        self.classes, self.label, self._stripped = classes, label, stripped

    @classmethod
    def of_names(cls, texts: pa.Array) -> "Tagging":
        """The classes of an array of texts."""
        names = pc.utf8_trim_whitespace(texts)
        is_blank = pc.equal(pc.binary_length(names), 0)
        changed = texts.filter(pc.and_(pc.not_equal(texts, names), pc.invert(is_blank)))
        classes = pc.unique(names.filter(pc.invert(is_blank)))
        classes = classes.take(pc.sort_indices(classes))
        columns = pc.index_in(names, value_set=classes).fill_null(-1)
        label = np.asarray(columns.to_numpy(zero_copy_only=False), dtype=np.int64)
        return cls(classes, label, changed.to_pylist())

    def remarks(self) -> list[str]:
        """A remark about names with blanks around them, if there are any."""
        if not self._stripped:
            return []
        return [f"blanks around tags are ignored: {some(self._stripped)}"]


def ignored_columns(text: Delimited, columns: list[int]) -> list[str]:
    """A remark about columns that a format does not use, if there are any."""
    if not columns:
        return []
    return [f"columns that are ignored: {some(text.header[i] for i in columns)}"]


def drops_of_tags(table: LabelTable) -> list[str]:
    """What a format cannot hold that lists the present classes of each image by name."""
    present = table.with_cells(table.cells.where(table.cells.values == PRESENT))
    lost = drops_absent(table) + drops_scores(table)
    return lost + drops_without_entries(present, images=False) + drops_order(table)


def tags_of_images(table: LabelTable) -> Iterator[tuple[str, str | None, list[str]]]:
    """Name, split and present classes of each image; the split is None if there are no splits."""
    present, classes = table.cells.where(table.cells.values == PRESENT), list(table.classes)
    splits = table.splits if table.splits is not None else [None] * len(table)
    columns, starts = present.columns.tolist(), present.starts.tolist()
    for row, (name, split) in enumerate(zip(table.ids, splits, strict=True)):
        yield name, split, [classes[column] for column in columns[starts[row] : starts[row + 1]]]


def _rows(table: LabelTable) -> Iterator[list[str]]:
    for name, split, tags in tags_of_images(table):
        first = [name] if split is None else [name, split]
        yield from ([*first, tag] for tag in tags or [""])
