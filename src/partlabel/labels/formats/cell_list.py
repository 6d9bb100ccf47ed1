"""The ``cells`` format: one row per label, with everything that is known about it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from partlabel.base.errors import some
from partlabel.base.files import atomic_file
from partlabel.labels import (
    CHOSEN,
    CONFIRMED,
    HUMAN,
    MODEL,
    NOT_ASKED,
    RANDOM,
    Details,
    LabelTable,
    Names,
)
from partlabel.labels.cells import Cells, stacked
from partlabel.labels.formats.delimited import (
    ABSENT_OR_PRESENT,
    DIGITS,
    Delimited,
    read_delimited,
    write_delimited,
)
from partlabel.labels.formats.format import PartsFormat
from partlabel.labels.formats.parquet import read_parquet
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated
from partlabel.labels.formats.wide import first_values
from partlabel.labels.table import MOST_ORIGINS, TOO_MANY_ORIGINS

_SOURCES = {"human": HUMAN, "model": MODEL, "": HUMAN}
ASKED = {"": NOT_ASKED, "random": RANDOM, "chosen": CHOSEN, "confirmed": CONFIRMED}
_REQUIRED_COLUMNS = {"image", "class", "value"}
_COLUMNS = _REQUIRED_COLUMNS | {"score", "source", "origin", "asked", "split"}
_IMAGES, _GROUP = 4096, 1 << 20  # of a table that is sliced, and cells that are written at a time
_CHECKED = "checked"  # in lists of labels to check: whether somebody did

Mask = NDArray[np.bool_]
Integers = NDArray[np.int64]


class CellList(PartsFormat):
    """``image,class,value,score,source[,origin,asked,split]`` as CSV or Parquet.

    This is the format of completed tables. A row with a score but without a value is a label that
    is still unknown. A row without a class names an image, and a row without an image names a
    class: so images and classes without labels are kept, and the order of both.
    """

    name = "cells"
    suffixes = (".parquet",)
    holds_origins = True

    def matches(self, source: Source) -> bool:
        """Whether there are columns image, class and value.

        In a text file with other columns too, these may be three classes of the format ``csv``.
        """
        if source.kind == "parquet":
            return set(source.parquet_columns) >= _REQUIRED_COLUMNS
        if source.kind != "text" or not set(source.header) >= _REQUIRED_COLUMNS:
            return False
        return set(source.header) <= _COLUMNS or not first_values(source, ["class"]) <= set(DIGITS)

    def read(self, source: Source) -> Stated:
        """One statement per row with an image and a class."""
        text = read_parquet(source) if source.kind == "parquet" else read_delimited(source)
        hint = "write 1, 0, or nothing for an unknown label"
        value = text.map(text.column("value"), ABSENT_OR_PRESENT, hint)
        details, origins = _details(text)
        is_label = _rows_with_labels(text, value, details)
        images, image_of = _images(text)
        classes, class_of = _classes(text)
        stated = Stated(images, classes, image_of, class_of, value, details, where=text.lines)
        if "split" in text.header:
            stated.splits = _splits(text, images, image_of)
        if not is_label.all():
            stated = _select(stated, np.flatnonzero(is_label))
        stated.origins = origins
        ignored = [name for name in text.header if name not in (*_COLUMNS, _CHECKED)]
        if ignored:
            stated.notes.remarks.append(f"columns that are ignored: {some(ignored)}")
        return stated

    def write(self, table: LabelTable, path: Path) -> None:
        """Write Parquet if the suffix is .parquet, else CSV."""
        order = np.arange(len(table))
        parts = (table.subset(order[i : i + _IMAGES]) for i in range(0, len(order), _IMAGES))
        self._write(table, parts, path, declares=not _in_order_of_appearance(table))

    def write_parts(
        self,
        header: LabelTable,
        parts: Iterable[LabelTable],
        path: Path,
        *,
        every_cell: bool = False,
    ) -> None:
        """Write part by part; the classes come first, unless the first part has them in order."""
        if every_cell:
            parts = iter(parts)
            head = list(islice(parts, 1))
            declares = not all(map(_in_order_of_appearance, head))
            self._write(header, chain(head, parts), path, declares=declares)
        else:  # nobody knows where they appear
            self._write(header, parts, path, declares=True)

    def _write(
        self, header: LabelTable, parts: Iterable[LabelTable], path: Path, *, declares: bool
    ) -> None:
        tables = _contents(header, parts, declares=declares)
        first = next(tables)
        if self.writes_text_table(path):
            rows = (row for table in chain([first], tables) for row in _text_rows(table))
            write_delimited(path, first.column_names, rows)
            return
        texts = [f.name for f in first.schema if pa.types.is_dictionary(f.type)]
        with (
            atomic_file(path) as stream,
            # texts are not stored as a type of Arrow, so that all programs read them as texts; and
            # statistics of them would take most of the time
            pyarrow.parquet.ParquetWriter(
                stream,
                first.schema,
                store_schema=False,
                use_dictionary=[*texts, "value"],
                write_statistics=False,
            ) as writer,
        ):
            for table in chain([first], tables):
                writer.write_table(table, row_group_size=max(len(table), 1))

    def writes_text_table(self, path: Path) -> bool:
        """Unless it is a Parquet file."""
        return path.suffix.lower() != ".parquet"


def checked_rows(source: Source, stated: Stated) -> Mask:
    """Which statements of a file somebody checked.

    They are those with something in the column ``checked``; without such a column, those that a
    model asked for.
    """
    text = read_parquet(source) if source.kind == "parquet" else read_delimited(source)
    if _CHECKED not in text.header:
        asked = stated.details.filled("asked", len(stated.value))
        return np.asarray(asked == CHOSEN)
    column = text.column(_CHECKED)
    filled = [ABSENT_OR_PRESENT.get(word.strip(), 1) == 1 for word in text.values(column)]
    is_checked = np.array(filled or [False])[text.codes(column)]
    return np.asarray(is_checked if stated.record is None else is_checked[stated.record])


def _details(text: Delimited) -> tuple[Details, list[str]]:
    """The details of each row, and the names of the origins."""
    details, origins = Details(), []
    if "score" in text.header:
        column = text.column("score")
        scores = text.numbers(column).astype(np.float32)[text.codes(column)]
        details = replace(details, scores=scores)
    if "source" in text.header:
        sources = text.map(text.column("source"), _SOURCES, "write human or model")
        details = replace(details, sources=sources)
    if "asked" in text.header:
        asked = text.map(text.column("asked"), ASKED, "write random, chosen, confirmed or nothing")
        details = replace(details, asked=asked)
    if "origin" in text.header:
        column = text.column("origin")
        names = [name.strip() for name in text.values(column)]
        origins = list(dict.fromkeys(name for name in names if name))
        if len(origins) > MOST_ORIGINS:
            raise text.source.error(TOO_MANY_ORIGINS)
        code = {"": 0} | {name: number for number, name in enumerate(origins, start=1)}
        codes = np.array([code[name] for name in names] or [0], dtype=np.uint8)
        details = replace(details, origins=codes[text.codes(column)])
    return details, origins


def _rows_with_labels(text: Delimited, value: NDArray[np.int8], details: Details) -> Mask:
    """Which rows have both an image and a class; a row with neither, or with a label, is wrong."""
    has_image = _has_image(text)
    column = text.column("class")
    filled = np.array([bool(name.strip()) for name in text.values(column)] or [False])
    has_class = filled[text.codes(column)]
    is_label = has_image & has_class
    has_label = (value != 0) | ~np.isnan(details.filled("scores", len(value)))
    wrong = np.flatnonzero(~is_label & (has_label | ~(has_image | has_class)))
    if len(wrong):
        record = int(wrong[0])
        name, thing = ("class", "a class") if has_image[record] else ("image", "an image")
        where = f"{text.line(record)}, column '{name}'"
        raise text.source.error(f"'' is not allowed; {thing} needs a name", where)
    return np.asarray(is_label)


def _has_image(text: Delimited) -> Mask:
    """[n] whether each row names an image."""
    column = text.column("image")
    empty = text.columns[column].dictionary.index("").as_py()
    return np.asarray(text.codes(column) != empty, dtype=np.bool_)


def _images(text: Delimited) -> tuple[Names, Integers]:
    """The images in order of appearance, and the image of each row, if it has one."""
    column = text.column("image")
    names, codes = text.columns[column].dictionary, text.codes(column).astype(np.int64)
    empty = names.index("").as_py()
    if empty < 0:
        return Names(names), codes
    others = pa.concat_arrays([names.slice(0, empty), names.slice(empty + 1)])
    return Names(others), codes - (codes > empty)


def _classes(text: Delimited) -> tuple[Names, Integers]:
    """The classes in order of appearance, and the class of each row, if it has one."""
    column = text.column("class")
    names = [name.strip() for name in text.values(column)]
    classes = list(dict.fromkeys(name for name in names if name))
    position = {"": 0} | {name: number for number, name in enumerate(classes)}
    codes = np.array([position[name] for name in names] or [0], dtype=np.int64)
    return Names(classes), codes[text.codes(column)]


def _splits(text: Delimited, images: Names, image_of: Integers) -> Names:
    """The split of each image; a row may leave it empty, but two different splits are an error."""
    column = text.column("split")
    names = [name.strip() for name in text.values(column)]
    splits = ["", *dict.fromkeys(name for name in names if name)]
    codes = np.array([splits.index(name) for name in names] or [0])[text.codes(column)]
    rows = np.flatnonzero((codes > 0) & _has_image(text))
    split_of_image = np.zeros(len(images), dtype=np.int64)
    split_of_image[image_of[rows]] = codes[rows]
    clashes = rows[split_of_image[image_of[rows]] != codes[rows]]
    if len(clashes):
        record = int(clashes[0])
        name = images[int(image_of[record])]
        raise text.source.error(f"image '{name}' is in two splits", text.line(record))
    return Names(splits).take(split_of_image)


def _select(stated: Stated, records: Integers) -> Stated:
    """Only the statements of these records."""
    return replace(
        stated,
        image=stated.image[records],
        label=stated.label[records],
        value=stated.value[records],
        details=stated.details.take(records),
        record=records,
    )


def _contents(
    header: LabelTable, parts: Iterable[LabelTable], *, declares: bool
) -> Iterator[pa.Table]:
    """The rows of a file in groups, each of which is in memory at once."""
    declared, waiting, cells = declares, list[LabelTable](), 0
    for part in parts:
        waiting.append(part)
        cells += len(part.cells.values)
        if cells >= _GROUP:
            yield _as_arrow(header, waiting, declares=declared)
            declared, waiting, cells = False, [], 0
    if waiting or declared == declares:  # the last group, or the only one
        yield _as_arrow(header, waiting, declares=declared)


def _as_arrow(header: LabelTable, parts: list[LabelTable], *, declares: bool) -> pa.Table:
    """Rows of a file: classes where needed, then for each image its cells, or it alone."""
    cells, details = stacked([part.cells for part in parts]), header.cells.details
    rows, positions = _rows_and_cells(cells)
    declared = np.arange(len(header.classes) if declares else 0)
    first = np.full(len(declared), -1)
    rows, positions = np.concatenate([first, rows]), np.concatenate([first, positions])
    classes = np.append(cells.columns, -1)[positions].astype(np.int64)
    classes[: len(declared)] = declared
    is_cell = positions >= 0

    def column(values: NDArray[Any], missing: NDArray[np.bool_]) -> pa.Array:
        """The values of cells, for each row; nothing for rows without a cell or a value."""
        return pa.array(
            np.append(values, values.dtype.type(0))[positions],
            mask=~is_cell | np.append(missing, True)[positions],
        )

    def words(texts: list[str], codes: NDArray[Any]) -> pa.Array:
        """A word for the code of each cell, nothing for the empty word."""
        empty = np.isin(codes, [code for code, text in enumerate(texts) if not text])
        return _named(column(codes.astype(np.int32), empty), pa.array(texts))

    sources = np.where(cells.values == 0, MODEL, cells.sources_or_human())
    scores, nothing = cells.scores_or_nan(), np.zeros(len(cells.values), dtype=np.bool_)
    ids = pa.concat_arrays([pa.array([], pa.large_string()), *(p.ids.plain() for p in parts)])
    columns = {
        "image": _named(_or_null(rows), ids),
        "class": _named(_or_null(classes), header.classes.plain()),
        "value": column((cells.values + 1) // 2, cells.values == 0),
        "score": column(scores, np.isnan(scores)),
        "source": _named(column(sources.astype(np.int32), nothing), pa.array(["human", "model"])),
    }
    if details.origins is not None:
        columns["origin"] = words(["", *header.origins], cells.origins_or_none())
    if details.asked is not None:
        columns["asked"] = words(list(ASKED), cells.asked_or_not())
    if header.splits is not None:
        columns["split"] = _split_column(parts, rows)
    return pa.table(columns)


def _split_column(parts: list[LabelTable], rows: Integers) -> pa.Array:
    """The split of the image of each row."""
    empty = pa.array([], pa.large_string())
    names = [part.splits.plain() for part in parts if part.splits is not None]
    splits = pc.dictionary_encode(pa.concat_arrays([empty, *names]))
    return _named(splits.indices.take(_or_null(rows)), splits.dictionary)


def _named(codes: pa.Array, names: pa.Array) -> pa.DictionaryArray:
    """The names at these positions; nothing where a position is missing."""
    return pa.DictionaryArray.from_arrays(codes.cast(pa.int32()), names)


def _rows_and_cells(cells: Cells) -> tuple[Integers, Integers]:
    """The row of each cell and its position; for an image without cells its row and -1."""
    empty = np.flatnonzero(np.diff(cells.starts) == 0)
    rows = np.concatenate([cells.rows, empty])
    positions = np.concatenate([np.arange(len(cells.values)), np.full(len(empty), -1)])
    if not len(empty):
        return rows, positions
    order = np.argsort(rows, kind="stable")
    return rows[order], positions[order]


def _in_order_of_appearance(table: LabelTable) -> bool:
    """Whether every class has a cell, and their first cells are in the order of the classes."""
    columns, first = np.unique(table.cells.columns, return_index=True)
    return len(columns) == len(table.classes) and bool((np.diff(first) > 0).all())


def _or_null(positions: Integers) -> pa.Array:
    return pa.array(positions, mask=positions < 0)


def _text_rows(content: pa.Table) -> Iterator[tuple[str, ...]]:
    text = [pc.fill_null(column.cast(pa.large_string()), "") for column in content.itercolumns()]
    for batch in pa.table(text, content.column_names).to_batches(max_chunksize=1 << 16):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
