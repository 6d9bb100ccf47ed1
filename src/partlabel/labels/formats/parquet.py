"""Parquet label tables, read as if they were text tables."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from partlabel.base.allocation import file_limit
from partlabel.base.errors import data_size
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
        _check_size(source, metadata)
        chosen = source.parquet_columns if source.options.ignore_columns else None
        # a long text that is stored once must not be repeated in memory for each row
        texts = [field.name for field in metadata.schema.to_arrow_schema() if _is_text(field.type)]
        table = pyarrow.parquet.read_table(
            source.for_arrow(), columns=chosen, read_dictionary=texts
        )
        table.validate(full=True)
        columns = [_as_text(column) for column in table.itercolumns()]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise source.error(f"cannot be read as Parquet ({error})") from error
    return ParquetTable(source, list(table.column_names), columns)


def _check_size(source: Source, metadata: pyarrow.parquet.FileMetaData) -> None:
    rows, columns = metadata.num_rows, metadata.num_columns
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    stored = sum(group.total_byte_size for group in groups)  # not compressed
    need, limit = max(rows * columns * _CELL, stored), file_limit()
    if need > limit:
        raise source.error(
            f"{rows:,} rows x {columns:,} columns need about {data_size(need)}, and the limit "
            f"is half of the memory here, {data_size(limit)}; split the file"
        )


def _as_text(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """A column as dictionary-encoded text; missing values and NaN become empty."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        raise pa.ArrowInvalid(f"a column of type {column.type}")
    if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
        return _with_empty_text(column.unify_dictionaries().combine_chunks())
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    text = pc.fill_null(column.cast(pa.string()), "")
    return text.dictionary_encode().unify_dictionaries().combine_chunks()


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string())


def _with_empty_text(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """A column of texts whose missing values are empty texts; no text is copied per row."""
    texts, codes = column.dictionary.cast(pa.string()), column.indices.cast(pa.int32())
    if column.null_count:
        if pc.index(texts, "").as_py() < 0:
            texts = pa.concat_arrays([texts, pa.array([""])])
        codes = pc.fill_null(codes, pc.index(texts, "").as_py())
    return pa.DictionaryArray.from_arrays(codes, texts)
