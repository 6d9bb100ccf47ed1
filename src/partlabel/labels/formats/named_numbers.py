"""Text tables whose records are some names followed by numbers."""

import math
import os
from collections.abc import Iterator

from partlabel.labels.formats.source import Source

Line = tuple[Source, str, list[str], list[float]]


def read_named(
    path: str | os.PathLike[str], header: list[str], numbers: int | None = None
) -> Iterator[Line]:
    """Read records of names and finite numbers.

    Args:
        path: a text table.
        header: the names of its first columns; the last ``numbers`` of them hold numbers.
        numbers: how many of these columns hold numbers; other columns are ignored. None if these
            columns hold names and all columns after them hold numbers.

    Yields:
        The source, the line in the file, the names, and the numbers.
    """
    source = Source(path)
    expected = ",".join(header) + ("" if numbers else ",number,...")
    if source.kind != "text":
        raise source.error(f"expected a text table: {expected}")
    if [name.lower() for name in source.header[: len(header)]] != header:
        raise source.error(f"the header must start with {','.join(header)}", "line 1")
    width = len(source.header)
    number_columns = slice(len(header) - (numbers or 0), width if numbers is None else len(header))
    for position, (line_number, fields) in enumerate(source.records()):
        line = f"line {line_number:,}"
        if position == 0:  # the header
            continue
        if len(fields) != width:
            raise source.error(f"expected {width} columns, found {len(fields)}", line)
        values = [_parse_number(source, text, line) for text in fields[number_columns]]
        names = [name.strip() for name in fields[: number_columns.start]]
        yield source, line, names, values


def _parse_number(source: Source, text: str, line: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise source.error(f"expected a number, found '{text}'", line)
    return number
