"""Parquet label tables, read as if they were text tables."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from partlabel.base.allocation import physical_memory
from partlabel.labels.formats.delimited import Delimited
from partlabel.labels.formats.source import Source


class ParquetTable(Delimited):
    """A table whose records have row numbers instead of lines."""

    def lines(self, records: Sequence[int]) -> list[str]:
        """The row numbers of records."""
        return [f"row {record + 1:,}" for record in records]


_CELL = 32  # bytes that a cell takes while a file is read, roughly


def read_parquet(source: Source) -> Delimited:
    """Read a whole Parquet file; values become text, so that the checks for text tables apply.

    A small file can hold very many rows. One that would need more than half of the memory of this
    computer is an error, before it is read.
    """
    try:
        metadata = pyarrow.parquet.read_metadata(source.for_arrow())
        _check_size(source, metadata.num_rows, metadata.num_columns)
        columns = source.parquet_columns if source.options.ignore_columns else None
        table = pyarrow.parquet.read_table(source.for_arrow(), columns=columns)
        table.validate(full=True)
        columns = [_as_text(column) for column in table.itercolumns()]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise source.error(f"cannot be read as Parquet ({error})") from error
    return ParquetTable(source, list(table.column_names), columns)


def _check_size(source: Source, rows: int, columns: int) -> None:
    need, limit = rows * columns * _CELL, physical_memory() // 2
    if need > limit:
        raise source.error(
            f"{rows:,} rows x {columns:,} columns need about {need / 1e9:,.1f} GB, and the limit "
            f"is half of the memory here, {limit / 1e9:,.1f} GB; split the file"
        )


def _as_text(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """A column as dictionary-encoded text; missing values and NaN become empty."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        raise pa.ArrowInvalid(f"a column of type {column.type}")
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    text = pc.fill_null(column.cast(pa.string()), "")
    return text.dictionary_encode().unify_dictionaries().combine_chunks()
