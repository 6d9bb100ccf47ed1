"""Parquet label tables, read as if they were text tables."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from partlabel.labels.formats.delimited import Delimited
from partlabel.labels.formats.source import Source


class ParquetTable(Delimited):
    """A table whose records have row numbers instead of lines."""

    def lines(self, records: Sequence[int]) -> list[str]:
        """The row numbers of records."""
        return [f"row {record + 1:,}" for record in records]


def read_parquet(source: Source) -> Delimited:
    """Read a whole Parquet file; values become text, so that the checks for text tables apply."""
    try:
        table = pyarrow.parquet.read_table(source.for_arrow())
        table.validate(full=True)
        columns = [_as_text(column) for column in table.itercolumns()]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise source.error(f"cannot be read as Parquet ({error})") from error
    return ParquetTable(source, list(table.column_names), columns)


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
