"""The ``open-images`` format: one row per label."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import ABSENT, MODEL, PRESENT, Details, LabelTable, Names
from partlabel.labels.formats.delimited import Delimited, read_delimited, write_delimited
from partlabel.labels.formats.format import (
    Format,
    drops_order,
    drops_scores,
    drops_splits,
    drops_without_entries,
)
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated


class OpenImages(Format):
    """``ImageID,Source,LabelName,Confidence``: 1 present, 0 absent, a fraction is a score."""

    name = "open-images"

    def matches(self, source: Source) -> bool:
        """Whether the columns have the names of Open Images."""
        required = {"ImageID", "LabelName", "Confidence"}
        return source.kind == "text" and required <= set(source.header)

    def read(self, source: Source) -> Stated:
        """One statement per row; columns other than these four are ignored."""
        text = read_delimited(source)
        confidence = text.column("Confidence")
        blank = [word for word in text.values(confidence) if not word.strip()]
        text.reject(confidence, blank, "expected 1 (present), 0 (absent) or a fraction (a score)")
        number, codes = text.numbers(confidence), text.codes(confidence)
        # exact decimals, because 0.999999999 is a score but would be rounded to 1
        exact = [Decimal(word.strip()) for word in text.values(confidence)] or [Decimal(0)]
        value = np.array([1 if d == 1 else -1 if d == 0 else 0 for d in exact], dtype=np.int8)
        low, high = np.finfo(np.float32).tiny, np.nextafter(np.float32(1), np.float32(0))
        score = np.where(value == 0, number.clip(low, high), np.nan).astype(np.float32)
        details = Details(score[codes] if (value == 0).any() else None)
        return _stated(text, "ImageID", "LabelName", value[codes], details)

    def write(self, table: LabelTable, path: Path) -> None:
        """Write human labels as verification, and labels and scores of a model as machine."""
        header = ["ImageID", "Source", "LabelName", "Confidence"]
        names = {"human": "verification", "model": "machine"}
        records = (
            [image, names[source], label, value if value != "" else score]
            for image, label, value, score, source in _cell_rows(table)
        )
        write_delimited(path, header, records)

    def drops(self, table: LabelTable) -> list[str]:
        """The scores of known labels and scores of exactly 0 or 1, splits, and names alone."""
        cells = table.cells
        known = cells.where(cells.values != 0)
        lost = drops_scores(table.with_cells(known))
        if cells.scores is not None and np.isin(cells.scores[cells.values == 0], (0, 1)).any():
            lost.append("the difference between scores of 0 and 1 and labels")
        return lost + drops_splits(table) + drops_without_entries(table) + drops_order(table)


def _stated(
    text: Delimited,
    image_column: str,
    class_column: str,
    value: NDArray[np.int8],
    details: Details,
) -> Stated:
    """One statement per record; images in order of appearance, classes in order of their names."""
    image, label = text.column(image_column), text.column(class_column)
    text.reject(image, {""}, "an image needs a name")
    text.reject(label, [v for v in text.values(label) if not v.strip()], "a class needs a name")
    names = [name.strip() for name in text.values(label)]
    classes = sorted(set(names))
    positions = {name: position for position, name in enumerate(classes)}
    to_class = np.array([positions[name] for name in names] or [0], dtype=np.int64)
    return Stated(
        Names(text.columns[image].dictionary),
        Names(classes),
        text.codes(image),
        to_class[text.codes(label)],
        value,
        details,
        where=text.lines,
    )


def _cell_rows(table: LabelTable) -> Iterator[tuple[str, str, str, str, str]]:
    """image, class, value, score and source of each cell, as text."""
    cells, classes = table.cells, list(table.classes)
    words = {PRESENT: "1", ABSENT: "0", 0: ""}
    scores = ("" if np.isnan(score) else str(score) for score in cells.scores_or_nan())
    sources = np.where(cells.values == 0, MODEL, cells.sources_or_human()).tolist()
    cells_per_image = np.diff(cells.starts).tolist()
    images = (name for name, n in zip(table.ids, cells_per_image, strict=True) for _ in range(n))
    columns, values = cells.columns.tolist(), cells.values.tolist()
    for image, column, value, score, source in zip(
        images, columns, values, scores, sources, strict=True
    ):
        yield image, classes[column], words[value], score, "model" if source else "human"
