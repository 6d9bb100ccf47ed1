"""The formats ``hf-disk`` and ``hf-disk-lists``: datasets that ``save_to_disk`` wrote.

The folder holds Arrow files and ``dataset_info.json``, or one such folder per split and
``dataset_dict.json``. Only these files are read, without the library that wrote them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from partlabel.base.errors import FileError, some
from partlabel.labels import PRESENT, Names
from partlabel.labels.formats.format import ReadOnlyFormat
from partlabel.labels.formats.source import IMAGE_NAMES, Source
from partlabel.labels.formats.stated import Notes, Stated, only_once
from partlabel.labels.formats.tag_tables import TAG_NAMES

_INFO, _STATE, _DICT = "dataset_info.json", "state.json", "dataset_dict.json"
_LABELS = {1: 1, 0: -1}


class HfDisk(ReadOnlyFormat):
    """One column per class, with 1 or true for present, 0 or false for absent, null for unknown."""

    name = "hf-disk"
    lists_every_cell = True

    def matches(self, source: Source) -> bool:
        """Whether this is such a folder, without a column of class labels."""
        return _is_dataset(source) and _label_column(_features(source)) is None

    def read(self, source: Source) -> Stated:
        """The labels of each image; the names of the folders are the splits."""
        parts = _parts(source)
        statements = []
        notes = Notes()
        for part in parts:
            names = part.class_columns()
            if not names:
                raise FileError(part.folder, "no column holds 0, 1 or null, so there are no labels")
            ignored = [n for n in part.table.column_names if n not in (*names, part.image, "split")]
            if ignored:
                notes.remarks.append(f"columns that are ignored: {some(ignored)}")
            statements.append([(name, part.labels(name)) for name in names])
        notes.remarks = list(dict.fromkeys(notes.remarks))
        classes = list(dict.fromkeys(name for columns in statements for name, _ in columns))
        return _join(parts, classes, _wide_cells(parts, statements, classes), notes)


class HfDiskLists(ReadOnlyFormat):
    """A column of class labels: one per image, or a list per image."""

    name = "hf-disk-lists"
    lists_only_present = True

    def matches(self, source: Source) -> bool:
        """Whether this is such a folder, with a column of class labels or of tags."""
        return _is_dataset(source) and _label_column(_features(source)) is not None

    def read(self, source: Source) -> Stated:
        """The present classes of each image; the names of the folders are the splits."""
        features = _features(source)
        column = _label_column(features)
        if column is None:
            raise source.error("no column holds class labels; one is called label, tags or similar")
        parts = _parts(source)
        named = _class_names(features[column])
        cells, used = [], dict.fromkeys(named)
        for part in parts:
            rows, values = part.lists(column)
            used |= dict.fromkeys(values.unique().to_pylist() if not named else ())
            cells.append((rows, values))
        classes = named or sorted(name for name in used if name)
        return _join(parts, classes, _list_cells(source, cells, classes, column, named), Notes())


Cells = list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]]
"""Rows, columns and values of the statements in each part of a dataset."""


@dataclass(frozen=True)
class Part:
    """One folder of Arrow files: a split of a dataset, or all of it.

    Args:
        folder: the folder.
        split: its name, None if there are no splits.
        table: the columns that are not ignored.
        image: the column with the names of the images.
    """

    folder: Path
    split: str | None
    table: pa.Table
    image: str

    def names(self) -> list[str]:
        """The names of the images; an image without a name is an error."""
        column = self.table[self.image]
        if pa.types.is_struct(column.type):  # an image: its bytes, and the path of its file
            column = pc.struct_field(column, "path")
        if not _is_text(column.type):
            raise FileError(self.folder, f"the column '{self.image}' holds no names of images")
        names: list[str] = column.to_pylist()
        for row, name in enumerate(names):
            if not name:
                raise FileError(
                    self.folder,
                    f"row {row + 1:,} of '{self.image}' has no file name; add a column 'file_name'",
                )
        only_once(Source(self.folder), "image", names)
        return names

    def class_columns(self) -> list[str]:
        """The columns that hold only 0, 1, true, false and null."""
        return [
            name
            for name in self.table.column_names
            if name not in (self.image, "split") and _holds_labels(self.table[name])
        ]

    def labels(self, name: str) -> NDArray[np.int8]:
        """[n] the labels in a column of classes."""
        numbers = pc.fill_null(self.table[name].cast(pa.int64()), -1).to_numpy()
        return np.where(numbers == 1, 1, np.where(numbers == 0, -1, 0)).astype(np.int8)

    def lists(self, name: str) -> tuple[NDArray[np.int64], pa.Array]:
        """The rows and the values of all labels in a column of lists or of single labels."""
        if name not in self.table.column_names:
            message = f"the Arrow files have no column '{name}', which {_INFO} names"
            raise FileError(self.folder, message)
        column = self.table[name].combine_chunks()
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            rows, values = pc.list_parent_indices(column), column.flatten()
        else:
            rows, values = pa.array(np.arange(len(column))), column
        keep = values.is_valid()
        return np.asarray(rows.filter(keep).to_numpy(), dtype=np.int64), values.filter(keep)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _holds_labels(column: pa.ChunkedArray) -> bool:
    if pa.types.is_boolean(column.type):
        return True
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return False
    values = set(pc.drop_null(pc.unique(column)).to_pylist())
    return values <= {0, 1}


def _is_dataset(source: Source) -> bool:
    return source.kind == "folder" and any((source.path / n).is_file() for n in (_INFO, _DICT))


def _json(path: Path) -> dict[str, Any]:
    document = Source(path).json
    if not isinstance(document, dict):
        raise FileError(path, "expected a JSON object {...}")
    return document


def _folders(source: Source) -> list[tuple[str | None, Path]]:
    """The split and the folder of each part of a dataset."""
    if not (source.path / _DICT).is_file():
        return [(None, source.path)]
    splits = _json(source.path / _DICT).get("splits")
    if not isinstance(splits, list) or not all(isinstance(name, str) for name in splits):
        raise FileError(source.path / _DICT, "expected a list of splits, such as train and test")
    for name in splits:
        if Path(name).name != name or not (source.path / name).is_dir():
            raise FileError(source.path / _DICT, f"there is no folder for the split '{name}'")
    if not splits:
        raise FileError(source.path / _DICT, "has no splits")
    return [(name, source.path / name) for name in splits]


def _features(source: Source) -> dict[str, Any]:
    """The types of the columns, without ignored ones."""
    if not _is_dataset(source):
        raise source.error(f"is no folder that save_to_disk wrote: it has no {_INFO}")
    _, folder = _folders(source)[0]
    features = _json(folder / _INFO).get("features")
    if not isinstance(features, dict):
        raise FileError(folder / _INFO, "has no features")
    ignored = source.ignored(list(features))
    return {name: feature for name, feature in features.items() if name not in ignored}


def _class_names(feature: object) -> list[str]:
    """The classes of a ClassLabel, or of a list of them; empty for another type."""
    if isinstance(feature, list) and len(feature) == 1:  # as older versions write a list
        feature = feature[0]
    if not isinstance(feature, dict):
        return []
    if feature.get("_type") == "ClassLabel":
        names = feature.get("names")
        is_valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
        return list(names) if is_valid and isinstance(names, list) else []
    inner = feature.get("feature")
    return _class_names(inner) if isinstance(inner, dict) else []


def _label_column(features: dict[str, Any]) -> str | None:
    """The column of class labels, or else the list of texts with a usual name for tags."""
    for name, feature in features.items():
        if _class_names(feature):
            return name
    for name, feature in features.items():
        inner = feature[0] if isinstance(feature, list) and feature else feature
        inner = inner.get("feature", inner) if isinstance(inner, dict) else inner
        if name.lower() in TAG_NAMES and isinstance(inner, dict) and inner.get("dtype") == "string":
            return name
    return None


def _parts(source: Source) -> list[Part]:
    parts = []
    for split, folder in _folders(source):
        table = _read_arrow(folder)
        only_once(source, "column", table.column_names, where=folder.name)
        ignored = source.ignored(table.column_names)
        table = table.drop_columns([name for name in table.column_names if name in ignored])
        columns = {name.lower(): name for name in reversed(table.column_names)}
        image = next((columns[name] for name in IMAGE_NAMES if name in columns), None)
        if image is None:
            message = f"no column holds images; call it {', '.join(IMAGE_NAMES[:3])} or similar"
            raise FileError(folder, message)
        parts.append(Part(folder, split, table, image))
    return parts


def _read_arrow(folder: Path) -> pa.Table:
    """The rows of all Arrow files of a folder; they are memory-mapped."""
    tables = []
    for path in _data_files(folder):
        try:
            tables.append(pa.ipc.open_stream(pa.memory_map(str(path))).read_all())
            tables[-1].validate(full=True)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise FileError(path, f"cannot be read as an Arrow stream ({error})") from error
    try:
        return pa.concat_tables(tables)
    except pa.ArrowException as error:
        raise FileError(folder, f"its Arrow files have different columns ({error})") from error


def _data_files(folder: Path) -> Iterator[Path]:
    state = _json(folder / _STATE) if (folder / _STATE).is_file() else {}
    if state.get("_indices_data_files"):
        raise FileError(folder, "holds a selection of rows; save it after flatten_indices()")
    listed = state.get("_data_files")
    names: list[Any]
    if isinstance(listed, list):
        names = [item.get("filename") for item in listed if isinstance(item, dict)]
    else:
        names = sorted(path.name for path in folder.glob("*.arrow"))
    if not names:
        raise FileError(folder, "has no Arrow file")
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise FileError(folder, f"there is no Arrow file {name!r}, which {_STATE} lists")
        yield folder / name


def _wide_cells(
    parts: list[Part],
    statements: list[list[tuple[str, NDArray[np.int8]]]],
    classes: list[str],
) -> Cells:
    position = {name: column for column, name in enumerate(classes)}
    cells: Cells = []
    for part, columns in zip(parts, statements, strict=True):
        matrix = np.zeros((len(part.table), len(classes)), dtype=np.int8)
        for name, values in columns:
            matrix[:, position[name]] = values
        rows, labels = np.nonzero(matrix)
        cells.append((rows, labels, matrix[rows, labels]))
    return cells


def _list_cells(
    source: Source,
    cells: list[tuple[NDArray[np.int64], pa.Array]],
    classes: list[str],
    column: str,
    named: Sequence[str],
) -> Cells:
    present: Cells = []
    for rows, values in cells:
        if named and pa.types.is_integer(values.type):
            labels = np.asarray(values.cast(pa.int64()).to_numpy())
            keep = labels != -1  # no label, as unlabelled splits have it
            rows, labels = rows[keep], labels[keep]
            if len(labels) and (labels.min() < 0 or labels.max() >= len(named)):
                raise source.error(f"a label in '{column}' is not one of the {len(named)} classes")
        elif _is_text(values.type):
            labels = Names(classes).find(Names(values))
            rows, labels = rows[labels >= 0], labels[labels >= 0]
        else:
            raise source.error(f"the column '{column}' holds {values.type}, not class labels")
        present.append((rows, labels, np.full(len(rows), PRESENT, dtype=np.int8)))
    return present


def _join(parts: list[Part], classes: list[str], cells: Cells, notes: Notes) -> Stated:
    """The statements of all parts as one; with splits, the folder is part of an image's name."""
    images: list[str] = []
    splits: list[str] = []
    first_rows: list[int] = []
    for part in parts:
        names = part.names()
        first_rows.append(len(images))
        images += names if part.split is None else [f"{part.split}/{name}" for name in names]
        splits += [part.split or ""] * len(names)
    rows = [rows + first for (rows, _, _), first in zip(cells, first_rows, strict=True)]
    return Stated(
        Names(images),
        Names(classes),
        np.concatenate(rows),
        np.concatenate([labels for _, labels, _ in cells]),
        np.concatenate([values for _, _, values in cells]),
        splits=splits if parts[0].split is not None else None,
        notes=notes,
    )
