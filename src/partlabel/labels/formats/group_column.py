"""Groups of images from a column of a table: the label file itself, or a file of its own."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError, count, one_of, some
from partlabel.labels import LabelTable, Names
from partlabel.labels.formats.delimited import Delimited, read_delimited
from partlabel.labels.formats.parquet import read_parquet
from partlabel.labels.formats.source import IMAGE_NAMES, Source
from partlabel.labels.groups import Groups

GROUP = "group"  # the column of a file with groups only


def is_file(group: str) -> bool:
    """Whether a value of ``--group`` names a file, not a column of the label file."""
    return Path(group).is_file()


def read_groups(group: str, labels: Path | None, table: LabelTable) -> Groups:
    """The groups that a value of ``--group`` states; an image without one is on its own.

    Args:
        group: a CSV or Parquet file with columns for the image and the group; or the name of a
            column of the label file.
        labels: the label file; None if there is none.
        table: the images.
    """
    if is_file(group):
        text = _read(Source(group))
        names = [name for name in text.header if name != _image_column(text)]
        column = GROUP if GROUP in names or len(names) != 1 else names[0]
    elif labels is None:
        raise InputError(f"--group {group}: there is no such file, and no label file with columns")
    else:
        text, column = _read(Source(labels)), group
        try:
            one_of("column", column, text.header)
        except InputError as error:
            raise InputError(f"--group {group}: no file, and in {labels}: {error}") from None
    return Groups.of_codes(_codes(text, text.column(column), table))


def _read(source: Source) -> Delimited:
    if source.kind not in ("text", "parquet"):
        raise source.error("has no columns; give --group a CSV file with the columns image,group")
    return read_delimited(source) if source.kind == "text" else read_parquet(source)


def _image_column(text: Delimited) -> str:
    """The column with the names of images: the first of the usual names, or the first column."""
    lower = {name.lower(): name for name in reversed(text.header)}
    return next(
        (lower[name] for name in (*IMAGE_NAMES, "imageid") if name in lower), text.header[0]
    )


def _codes(text: Delimited, column: int, table: LabelTable) -> NDArray[np.int64]:
    """[n] a number for the group of each image, -1 without; an image in two groups is an error."""
    image = text.column(_image_column(text))
    row_of_name = table.ids.find(Names(text.columns[image].dictionary))
    rows, codes = row_of_name[text.codes(image)], text.codes(column).astype(np.int64)
    empty = [code for code, value in enumerate(text.values(column)) if not value.strip()]
    stated = np.flatnonzero((rows >= 0) & ~np.isin(codes, empty))
    if len(text) and not (rows >= 0).any():
        example = some(text.values(image)[:3])
        raise text.source.error(f"no image of the labels is in it; it has images such as {example}")
    group = np.full(len(table), -1, dtype=np.int64)
    group[rows[stated]] = codes[stated]
    clashes = stated[group[rows[stated]] != codes[stated]]
    if len(clashes):
        record = int(clashes[0])
        name = table.ids[int(rows[record])]
        raise text.source.error(
            f"image '{name}' is in two groups ({count(len(clashes), 'such line')})",
            text.line(record),
        )
    return group
