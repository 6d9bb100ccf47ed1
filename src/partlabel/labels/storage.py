"""A label table in one Arrow file, which is memory-mapped: opening it reads only the header.

The file is an Arrow IPC file that polars, pandas and R can read too. It has one row per image; the
cells of an image are a list of (class, value[, score, source, origin, asked]). The names of classes
and origins are in the schema's metadata.
"""

import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from partlabel.base.allocation import file_limit
from partlabel.base.errors import InputError, data_size
from partlabel.base.files import atomic_file
from partlabel.labels.arrow_size import expanded_size
from partlabel.labels.cells import CONFIRMED, NOT_ASKED, Cells, Details
from partlabel.labels.names import Names
from partlabel.labels.table import LabelTable

VERSION = 1

_DETAILS = {"score": "scores", "source": "sources", "origin": "origins", "asked": "asked"}
_FIELDS = {
    "class": pa.int32(),
    "value": pa.int8(),
    "score": pa.float32(),
    "source": pa.int8(),
    "origin": pa.uint8(),
    "asked": pa.int8(),
}


def save(table: LabelTable, path: str | os.PathLike[str]) -> None:
    """Write ``table`` to ``path`` atomically."""
    cells = table.cells
    splits = None if table.splits is None else table.splits.array
    columns = _columns(cells, cells.details)
    _write(table, table.ids.plain(), splits, cells.starts, columns, path)


def save_parts(
    header: LabelTable, parts: Iterable[LabelTable], path: str | os.PathLike[str]
) -> None:
    """Write a table that comes in parts of consecutive images, atomically.

    Each column is first a file of its own, next to ``path``; names are kept in memory.

    Args:
        header: the classes and origins; the details of its cells are those of the parts.
    """
    fields = list(_columns(header.cells, header.cells.details))
    no_names = pa.array([], pa.large_string())
    ids, splits, numbers = [no_names], [no_names], [np.zeros(1, dtype=np.int64)]
    with tempfile.TemporaryDirectory(dir=Path(path).parent, prefix=".") as folder:
        files = {field: Path(folder) / field for field in fields}
        with ExitStack() as stack:
            streams = {name: stack.enter_context(file.open("wb")) for name, file in files.items()}
            for part in parts:
                ids.append(part.ids.plain())
                splits += [] if part.splits is None else [part.splits.plain()]
                numbers.append(np.diff(part.cells.starts))
                for name, column in _columns(part.cells, header.cells.details).items():
                    column.astype(_type_of(name), copy=False).tofile(streams[name])
        columns = {name: _mapped(file, _type_of(name)) for name, file in files.items()}
        has_splits = header.splits is not None
        names = pc.dictionary_encode(pa.concat_arrays(splits)) if has_splits else None
        starts = np.cumsum(np.concatenate(numbers))
        _write(header, pa.concat_arrays(ids), names, starts, columns, path)


def _columns(cells: Cells, stored: Details) -> dict[str, NDArray[Any]]:
    """The columns of cells by the names of their fields; details if some are stored."""
    columns: dict[str, NDArray[Any]] = {"class": cells.columns, "value": cells.values}
    for field, name in _DETAILS.items():
        if name in stored.columns():
            columns[field] = cells.details.filled(name, len(cells.values))
    return columns


def _type_of(field: str) -> Any:
    return _FIELDS[field].to_pandas_dtype()


def _mapped(path: Path, dtype: Any) -> NDArray[Any]:
    """The numbers in a file, which are read when they are needed."""
    size = path.stat().st_size
    return np.memmap(path, dtype=dtype, mode="r") if size else np.empty(0, dtype=dtype)


def _write(
    header: LabelTable,
    ids: pa.Array,
    splits: pa.Array | None,
    starts: NDArray[np.int64],
    columns: dict[str, NDArray[Any]],
    path: str | os.PathLike[str],
) -> None:
    """Write names and cells to one file; ``header`` has the classes and origins."""
    struct = pa.StructArray.from_arrays(
        [pa.array(column, type=_FIELDS[name]) for name, column in columns.items()], list(columns)
    )
    arrays = {"image": ids}
    if splits is not None:
        arrays["split"] = splits
    arrays["cells"] = pa.LargeListArray.from_arrays(pa.array(starts), struct)
    names = {"classes": list(header.classes)}
    names |= {"origins": list(header.origins)} if len(header.origins) else {}
    text = json.dumps({"version": VERSION, **names})
    batch = pa.record_batch(arrays).replace_schema_metadata({"partlabel": text})
    with atomic_file(path) as stream, pa.ipc.new_file(stream, batch.schema) as writer:
        writer.write_batch(batch)


def load(path: str | os.PathLike[str]) -> LabelTable:
    """Map the table at ``path`` into memory.

    :func:`save` does not compress, but other programs may, and then the table is expanded in
    memory. One that would need more than half of the memory of this computer is an error, before it
    is read.
    """
    try:
        need, limit = expanded_size(path), file_limit()
        if need > limit:
            raise InputError(
                f"{path}: its compressed columns need {data_size(need)}, and the limit is half of "
                f"the memory here, {data_size(limit)}; save it without compression"
            )
        batches = pa.ipc.open_file(pa.memory_map(os.fspath(path)))
        header = json.loads((batches.schema.metadata or {})[b"partlabel"])
        version = header["version"]
        if version != VERSION:
            raise InputError(
                f"{path}: a label table of version {version}; this program reads {VERSION}"
            )
        if batches.num_record_batches != 1:
            raise ValueError("more than one record batch")
        batch = batches.get_batch(0)
        batch.validate()
        _check_types(batch.schema)
        splits = Names(batch["split"]) if "split" in batch.schema.names else None
        cells = _as_cells(batch["cells"])
        ids, classes = Names(batch["image"]), Names(header["classes"])
        origins = Names(header.get("origins", []))
        return LabelTable.from_cells(ids, classes, cells, splits, origins, check=False)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be opened as a label table: {error}") from error
    except (pa.ArrowException, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a label table that partlabel saved ({error})") from error


def check(table: LabelTable, path: str | os.PathLike[str]) -> LabelTable:
    """Read all of an opened table; raise an error if its cells or names are damaged."""
    cells, (images, classes) = table.cells, table.shape
    valid = len(cells) == images and len(cells.starts) > 0 and cells.starts[0] == 0
    valid = valid and bool((np.diff(cells.starts) >= 0).all())
    valid = valid and int(cells.starts[-1]) == len(cells.values)
    if valid and len(cells.values):
        valid = int(cells.columns.min()) >= 0 and int(cells.columns.max()) < classes
        valid = valid and int(cells.values.min()) >= -1 and int(cells.values.max()) <= 1
        asked = cells.asked_or_not()
        valid = valid and int(asked.min()) >= NOT_ASKED and int(asked.max()) <= CONFIRMED
    if not valid:
        raise InputError(f"{path}: the label table is damaged: cells outside its images or classes")
    try:
        for names in (table.ids, table.splits or table.ids):
            names.array.validate(full=True)
        return LabelTable.from_cells(table.ids, table.classes, cells, table.splits, table.origins)
    except (pa.ArrowException, InputError) as error:
        raise InputError(f"{path}: the label table is damaged: {error}") from error


def _check_types(schema: pa.Schema) -> None:
    """Raise an error for a schema that :func:`save` does not write."""
    cells = schema.field("cells").type
    item: Any = cells.value_type if pa.types.is_large_list(cells) else cells
    fields = [item.field(i) for i in range(item.num_fields)] if pa.types.is_struct(item) else []
    valid = [field.name for field in fields][:2] == ["class", "value"]
    valid = valid and all(_FIELDS.get(field.name) == field.type for field in fields)
    valid = valid and schema.field("image").type == pa.large_string()
    if "split" in schema.names:
        split = schema.field("split").type
        valid = valid and pa.types.is_dictionary(split)
        valid = valid and split.value_type in (pa.string(), pa.large_string())
    if not valid:
        raise ValueError(f"its columns are {schema.to_string(show_schema_metadata=False)}")


def _as_cells(lists: pa.Array) -> Cells:
    """Cells that are views of the lists' buffers, not copies."""
    struct = lists.values

    def column(name: str) -> Any:
        if struct.type.get_field_index(name) < 0:
            return None
        return struct.field(name).to_numpy(zero_copy_only=True)

    return Cells(
        lists.offsets.to_numpy(zero_copy_only=True),
        column("class"),
        column("value"),
        Details(**{name: column(field) for field, name in _DETAILS.items()}),
    )
