"""Formats with a row a cell: ``cells`` and ``open-images``."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from partlabel.base.files import atomic_file
from partlabel.labels import ABSENT, HUMAN, MODEL, PRESENT, LabelTable, Names
from partlabel.labels.formats.delimited import (
    ABSENT_OR_PRESENT,
    Delimited,
    read_delimited,
    write_delimited,
)
from partlabel.labels.formats.format import (
    Format,
    drops_order,
    drops_scores,
    drops_silent,
    drops_splits,
)
from partlabel.labels.formats.parquet import read_parquet
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated

_SOURCES = {"human": HUMAN, "model": MODEL, "": HUMAN}
_COLUMNS = ("image", "class", "value", "score", "source")


class CellList(Format):
    """``image,class,value,score,source``: the form of completed tables, as CSV or Parquet.

    A row without value but with a score is a cell that is still unknown.
    """

    name = "cells"
    suffixes = (".parquet",)

    def matches(self, source: Source) -> bool:
        """A column each for image, class and value, and nothing foreign."""
        if source.kind == "parquet":
            return set(_COLUMNS[:3]) <= set(source.parquet_columns)
        return source.kind == "text" and set(_COLUMNS[:3]) <= set(source.header) <= set(_COLUMNS)

    def read(self, source: Source) -> Stated:
        """Parquet or delimited text alike."""
        text = read_parquet(source) if source.kind == "parquet" else read_delimited(source)
        value = text.map(
            text.column("value"), ABSENT_OR_PRESENT, "write 1, 0, or nothing (only a score)"
        )
        scores = sources = None
        if "score" in text.header:
            score = text.column("score")
            scores = text.numbers(score).astype(np.float32)[text.codes(score)]
        if "source" in text.header:
            sources = text.map(text.column("source"), _SOURCES, "write human or model")
        return _stated(text, "image", "class", value, scores, sources)

    def write(self, table: LabelTable, path: Path) -> None:
        """Parquet if the file is to be called so, else CSV."""
        if path.suffix.lower() == ".parquet":
            with atomic_file(path) as stream:
                pyarrow.parquet.write_table(_as_arrow(table), stream)
        else:
            write_delimited(path, list(_COLUMNS), _cell_rows(table))

    def drops(self, table: LabelTable) -> list[str]:
        """What has no cell has no row."""
        return drops_splits(table) + drops_silent(table) + drops_order(table)


class OpenImages(Format):
    """``ImageID,Source,LabelName,Confidence``: 1 present, 0 absent, a fraction is a score."""

    name = "open-images"

    def matches(self, source: Source) -> bool:
        """Open Images' own column names."""
        needed = {"ImageID", "LabelName", "Confidence"}
        return source.kind == "text" and needed <= set(source.header)

    def read(self, source: Source) -> Stated:
        """Columns other than the four are passed over."""
        text = read_delimited(source)
        confidence = text.column("Confidence")
        text.refuse(confidence, {""}, "expected 1 (present), 0 (absent) or a fraction (a score)")
        number, codes = text.numbers(confidence), text.codes(confidence)
        # as written, not as rounded: 0.999999999 is a score
        exact = [Decimal(word.strip() or 0) for word in text.values(confidence)] or [Decimal(0)]
        value = np.array([1 if d == 1 else -1 if d == 0 else 0 for d in exact], dtype=np.int8)
        low, high = np.finfo(np.float32).tiny, np.nextafter(np.float32(1), np.float32(0))
        score = np.where(value == 0, number.clip(low, high), np.nan).astype(np.float32)
        scores = score[codes] if (value == 0).any() else None
        return _stated(text, "ImageID", "LabelName", value[codes], scores, None)

    def write(self, table: LabelTable, path: Path) -> None:
        """What people say as verification, labels and scores of a model as a machine's."""
        header = ["ImageID", "Source", "LabelName", "Confidence"]
        names = {"human": "verification", "model": "machine"}
        records = (
            [image, names[source], label, value if value != "" else score]
            for image, label, value, score, source in _cell_rows(table)
        )
        write_delimited(path, header, records)

    def drops(self, table: LabelTable) -> list[str]:
        """Keeps the scores of unknown cells only, if they are fractions."""
        cells = table.cells
        known = cells.where(cells.values != 0)
        lost = drops_scores(table.with_cells(known))
        if cells.scores is not None and np.isin(cells.scores[cells.values == 0], (0, 1)).any():
            lost.append("that some scores of 0 and 1 are no labels")
        return lost + drops_splits(table) + drops_silent(table) + drops_order(table)


def _stated(
    text: Delimited,
    image_column: str,
    class_column: str,
    value: NDArray[np.int8],
    scores: NDArray[np.float32] | None,
    sources: NDArray[np.int8] | None,
) -> Stated:
    """Images in order of appearance, classes by name."""
    image, label = text.column(image_column), text.column(class_column)
    text.refuse(image, {""}, "an image needs a name")
    text.refuse(label, [v for v in text.values(label) if not v.strip()], "a class needs a name")
    names = [name.strip() for name in text.values(label)]
    classes = sorted(set(names))
    place = {name: i for i, name in enumerate(classes)}
    to_class = np.array([place[name] for name in names] or [0], dtype=np.int64)
    return Stated(
        Names(text.columns[image].dictionary),
        Names(classes),
        text.codes(image),
        to_class[text.codes(label)],
        value,
        scores,
        sources,
        where=text.lines,
    )


def _cell_rows(table: LabelTable) -> Iterator[tuple[str, str, str, str, str]]:
    """image, class, value, score, source of each cell, as text."""
    cells, classes = table.cells, list(table.classes)
    words = {PRESENT: "1", ABSENT: "0", 0: ""}
    scores = (str(s) if s == s else "" for s in cells.scores_or_nan())  # NaN is not itself
    sources = np.where(cells.values == 0, MODEL, cells.sources_or_human()).tolist()
    counts = np.diff(cells.starts).tolist()
    images = (name for name, n in zip(table.ids, counts, strict=True) for _ in range(n))
    columns, values = cells.columns.tolist(), cells.values.tolist()
    for image, column, value, score, origin in zip(
        images, columns, values, scores, sources, strict=True
    ):
        yield image, classes[column], words[value], score, "model" if origin else "human"


def _as_arrow(table: LabelTable) -> pa.Table:
    cells = table.cells
    sources = np.where(cells.values == 0, MODEL, cells.sources_or_human())
    return pa.table(
        {
            "image": pc.take(table.ids.plain(), cells.rows),
            "class": pc.take(table.classes.plain(), cells.columns),
            "value": pa.array((cells.values + 1) // 2, mask=cells.values == 0),
            "score": pa.array(cells.scores_or_nan(), from_pandas=True),
            "source": pc.take(pa.array(["human", "model"]), sources),
        }
    )
