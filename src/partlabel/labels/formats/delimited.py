"""Comma, semicolon or tab separated text: read in one go by Arrow, mistakes found line by line.

Arrow parses a file in all cores but knows no line numbers. So the fast pass only finds out that
something is wrong, and a slow pass with Python's own ``csv`` then says where.
"""

import csv
import io
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
from partlabel.base.files import atomic_file
from partlabel.labels.formats.source import LONGEST_LINE, Source


def _spellings(*words: str) -> list[str]:
    return [spelt for word in words for spelt in (word, word.capitalize(), word.upper())]


DIGITS = {
    "1": 1,
    "0": -1,
    "1.0": 1,
    "0.0": -1,  # pandas writes a column with holes as 1.0 and 0.0
    **dict.fromkeys(("", "nan", "NaN", "NA", "null"), 0),
}
ABSENT_OR_PRESENT = {
    **DIGITS,
    **dict.fromkeys(_spellings("yes", "true"), 1),
    **dict.fromkeys(_spellings("no", "false"), -1),
}
"""What the cells of most text formats may say."""


@dataclass(frozen=True)
class Delimited:
    """The records of a delimited text after its header, by column, each value coded once."""

    source: Source
    header: list[str]
    columns: list[pa.DictionaryArray]

    def __len__(self) -> int:
        return len(self.columns[0])

    def lines(self, records: Sequence[int]) -> list[str]:
        """Where records (0 is the first after the header) are in the file."""
        wanted, last = {record + 1 for record in records}, max(records, default=-1) + 1
        found = {}
        for number, (line, _) in enumerate(self.source.records() if wanted else ()):
            if number in wanted:
                found[number - 1] = f"line {line:,}"
            if number >= last:
                break
        return [found.get(record, f"record {record + 1:,}") for record in records]

    def line(self, record: int) -> str:
        """Where one record is in the file."""
        return self.lines([record])[0]

    def column(self, name: str) -> int:
        """Where a column is; one that is missing, or there twice, is an error."""
        if self.header.count(name) != 1:
            found = "is missing" if name not in self.header else "is there twice"
            raise self.source.error(f"the column '{name}' {found} in the header", "line 1")
        return self.header.index(name)

    def codes(self, column: int) -> NDArray[np.int32]:
        """[n] for each record the number of its value among :meth:`values`."""
        return np.asarray(self.columns[column].indices.to_numpy())

    def values(self, column: int) -> list[str]:
        """The different values of a column, in order of appearance."""
        values: list[str] = self.columns[column].dictionary.to_pylist()
        return values

    def map(self, column: int, meaning: dict[str, int], hint: str = "") -> NDArray[np.int8]:
        """[n] the meaning of each value of a column; another value is an error with its line."""
        self.check({column: self._unknown(column, meaning)}, hint)
        known = [meaning.get(value.strip(), 0) for value in self.values(column)]
        return np.array(known or [0], dtype=np.int8)[self.codes(column)]

    def check_all(self, columns: list[int], meaning: dict[str, int], hint: str) -> None:
        """Refuse the topmost record with a value that means nothing in one of these columns."""
        self.check({column: self._unknown(column, meaning) for column in columns}, hint)

    def _unknown(self, column: int, meaning: dict[str, int]) -> set[str]:
        return {value for value in self.values(column) if value.strip() not in meaning}

    def numbers(self, column: int) -> NDArray[np.float64]:
        """[values] the different values of a column as numbers from 0 to 1, NaN for an empty one;
        the numbers of the records are these at :meth:`codes`."""
        values = self.values(column)
        parsed = [_number(value) for value in values]
        wrong = {v for v, p in zip(values, parsed, strict=True) if p is None}
        if wrong:
            self.refuse(column, wrong, "expected a number from 0 to 1, or nothing")
        return np.array([p or 0.0 for p in parsed] or [0.0])

    def refuse(self, column: int, wrong: Iterable[str], hint: str) -> None:
        """Raise an error at the first record that has one of the wrong values in this column."""
        self.check({column: set(wrong)}, hint)

    def check(self, wrong: dict[int, set[str]], hint: str) -> None:
        """Raise an error at the first record that has a wrong value in one of these columns."""
        found: list[tuple[int, int]] = []
        for column, values in wrong.items():
            known = self.columns[column].dictionary
            bad = np.asarray(pc.is_in(known, value_set=pa.array(sorted(values), known.type)))
            if bad.any():
                records = np.flatnonzero(bad[self.codes(column)])
                found += [(int(record), column) for record in records[:1]]
        if found:
            record, column = min(found)
            value = self.columns[column][record].as_py()
            shown = value if len(value) < 50 else value[:47] + "..."
            where = f"{self.line(record)}, column '{self.header[column]}'"
            raise self.source.error(f"{shown!r} is not allowed; {hint}", where)


def _number(value: str) -> float | None:
    if not value.strip():
        return float("nan")
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None


def read_delimited(source: Source) -> Delimited:
    """Read a whole delimited text; a ragged or unreadable one is an error with its line."""
    header, names = source.header, [f"f{i}" for i in range(len(source.header))]
    coded = pa.dictionary(pa.int32(), pa.string())
    lines = [line for line, _ in islice(source.records(), 2)]
    if len(lines) < 2:
        return Delimited(source, header, [pa.array([], type=coded) for _ in names])
    try:
        table = pyarrow.csv.read_csv(
            source.utf8(),
            read_options=pyarrow.csv.ReadOptions(
                column_names=names,
                skip_rows=lines[0] - 1,
                skip_rows_after_names=1,
                block_size=LONGEST_LINE,
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=source.delimiter, newlines_in_values=source.text.quoted
            ),
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, coded)),
        )
    except pa.ArrowException as error:
        raise _explain(source, str(error)) from None
    columns = [column.unify_dictionaries().combine_chunks() for column in table.itercolumns()]
    return Delimited(source, header, columns)


def _explain(source: Source, message: str) -> Exception:
    width = len(source.header)
    for line, fields in source.records():
        if len(fields) != width:
            found = count(len(fields), "field")
            return source.error(f"{found}, but the header has {width:,}", f"line {line:,}")
    return source.error(f"cannot be read as a table ({message})")


def write_delimited(path: Path, header: list[str], records: Iterable[Iterable[object]]) -> None:
    """Write a comma-separated file (tabs for .tsv), whole or not at all."""
    with atomic_file(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(records)
        text.detach()
