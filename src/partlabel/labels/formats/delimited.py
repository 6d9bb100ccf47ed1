"""Text tables separated by commas, semicolons or tabs.

Arrow parses a file on all cores but does not know line numbers. So the fast parser only finds that
something is wrong, and a second, slow pass with Python's ``csv`` finds the line.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from partlabel.base.errors import count
from partlabel.labels.formats.packing import packed_file, unpacked_suffix
from partlabel.labels.formats.source import LONGEST_LINE, Source


def _spellings(*words: str) -> list[str]:
    return [spelling for word in words for spelling in (word, word.capitalize(), word.upper())]


DIGITS = {
    "1": 1,
    "0": -1,
    "1.0": 1,
    "0.0": -1,  # pandas writes a column with missing values as 1.0 and 0.0
    **dict.fromkeys(("", "nan", "NaN", "NA", "null"), 0),
}
ABSENT_OR_PRESENT = {
    **DIGITS,
    **dict.fromkeys(_spellings("yes", "true"), 1),
    **dict.fromkeys(_spellings("no", "false"), -1),
}
"""The label that each allowed text stands for, in most text formats."""

# not all that float() accepts: 0_1 and digits of other scripts are typing errors
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Delimited:
    """The records of a text table, without its header, as dictionary-encoded columns."""

    source: Source
    header: list[str]
    columns: list[pa.DictionaryArray]

    def __len__(self) -> int:
        return len(self.columns[0])

    def lines(self, records: Sequence[int]) -> list[str]:
        """The lines of records in the file; record 0 is the first after the header."""
        wanted, last = {record + 1 for record in records}, max(records, default=-1) + 1
        line_of_record = {}
        for number, (line, _) in enumerate(self.source.records() if wanted else ()):
            if number in wanted:
                line_of_record[number - 1] = self.source.line(line)
            if number >= last:
                break
        return [line_of_record.get(record, f"record {record + 1:,}") for record in records]

    def line(self, record: int) -> str:
        """The line of one record in the file."""
        return self.lines([record])[0]

    def column(self, name: str) -> int:
        """The position of a column; a column that is missing or occurs twice is an error."""
        if self.header.count(name) != 1:
            problem = "is missing" if name not in self.header else "occurs twice"
            raise self.source.error(
                f"the column '{name}' {problem} in the header", self.source.line(1)
            )
        return self.header.index(name)

    def codes(self, column: int) -> NDArray[np.int32]:
        """[n] for each record the position of its value in :meth:`values`."""
        return np.asarray(self.columns[column].indices.to_numpy())

    def values(self, column: int) -> list[str]:
        """The distinct values of a column, in order of appearance."""
        values: list[str] = self.columns[column].dictionary.to_pylist()
        return values

    def map(self, column: int, meaning: dict[str, int], hint: str = "") -> NDArray[np.int8]:
        """[n] the meaning of each record's value; a value without meaning is an error."""
        self.require_known([column], meaning, hint)
        meanings = [meaning.get(value.strip(), 0) for value in self.values(column)]
        return np.array(meanings or [0], dtype=np.int8)[self.codes(column)]

    def require_known(self, columns: list[int], meaning: dict[str, int], hint: str) -> None:
        """Raise an error at the first record with a value without meaning in these columns."""
        invalid = {
            column: {value for value in self.values(column) if value.strip() not in meaning}
            for column in columns
        }
        self.reject_first(invalid, hint)

    def numbers(self, column: int) -> NDArray[np.float64]:
        """The distinct values of a column as numbers from 0 to 1, NaN for an empty one.

        ``numbers(column)[codes(column)]`` has one number per record.
        """
        values = self.values(column)
        parsed = [_parse_share(value) for value in values]
        invalid = {value for value, p in zip(values, parsed, strict=True) if p is None}
        if invalid:
            self.reject(column, invalid, "expected a number from 0 to 1, or nothing")
        return np.array([p or 0.0 for p in parsed] or [0.0])

    def reject(self, column: int, invalid: Iterable[str], hint: str) -> None:
        """Raise an error at the first record with an invalid value in this column."""
        self.reject_first({column: set(invalid)}, hint)

    def reject_first(self, invalid: dict[int, set[str]], hint: str) -> None:
        """Raise an error at the first record with an invalid value in any of these columns."""
        first_of_column: list[tuple[int, int]] = []
        for column, values in invalid.items():
            dictionary = self.columns[column].dictionary
            value_set = pa.array(sorted(values), dictionary.type)
            is_invalid = np.asarray(pc.is_in(dictionary, value_set=value_set))
            if is_invalid.any():
                records = np.flatnonzero(is_invalid[self.codes(column)])
                first_of_column += [(int(record), column) for record in records[:1]]
        if first_of_column:
            record, column = min(first_of_column)
            value = self.columns[column][record].as_py()
            excerpt = value if len(value) < 50 else value[:47] + "..."
            where = f"{self.line(record)}, column '{self.header[column]}'"
            raise self.source.error(f"{excerpt!r} is not allowed; {hint}", where)


def _parse_share(text: str) -> float | None:
    """A number from 0 to 1, NaN for an empty text, None for any other text."""
    if not text.strip():
        return float("nan")
    if not _DECIMAL.fullmatch(text.strip()):
        return None
    number = float(text.strip())  # strip() knows more spaces than float()
    return number if 0 <= number <= 1 else None


def read_delimited(source: Source) -> Delimited:
    """Read a whole text table without its ignored columns.

    Records of different lengths are an error with the line.
    """
    if source.parsed is None:
        source.parsed = _parse(source)
    return source.parsed


def _parse(source: Source) -> Delimited:
    header, names = source.header, [f"f{i}" for i in range(len(source.all_columns))]
    ignored = source.ignored(source.all_columns)
    kept = [n for n, title in zip(names, source.all_columns, strict=True) if title not in ignored]
    text_type = pa.dictionary(pa.int32(), pa.string())
    first_lines = [line for line, _ in islice(source.records(), 2)]
    if len(first_lines) < 2:
        return Delimited(source, header, [pa.array([], type=text_type) for _ in kept])
    try:
        table = pyarrow.csv.read_csv(
            source.utf8(),
            read_options=pyarrow.csv.ReadOptions(
                column_names=names,
                skip_rows=first_lines[0] - 1,
                skip_rows_after_names=1,
                block_size=LONGEST_LINE,
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=source.delimiter, newlines_in_values=source.text.quoted
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, text_type), include_columns=kept
            ),
        )
    except pa.ArrowException as error:
        raise _parse_error(source, str(error)) from None
    columns = [column.unify_dictionaries().combine_chunks() for column in table.itercolumns()]
    return Delimited(source, header, columns)


def _parse_error(source: Source, message: str) -> Exception:
    """The error for a file that Arrow cannot parse, with the line if a record is to blame."""
    width = len(source.all_columns)
    for line, fields in source.records():
        if len(fields) != width:
            number = count(len(fields), "field")
            return source.error(f"{number}, but the header has {width:,}", source.line(line))
    return source.error(f"cannot be read as a table ({message})")


def write_delimited(path: Path, header: list[str], records: Iterable[Iterable[object]]) -> None:
    """Write a comma-separated file atomically; a .tsv file is separated by tabs.

    A file whose name ends with .gz or .zst is compressed.
    """
    with packed_file(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        delimiter = "\t" if unpacked_suffix(path) == ".tsv" else ","
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(records)
        text.detach()
