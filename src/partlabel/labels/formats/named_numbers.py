"""Tables in which each line has some names, then numbers."""

import math
import os
from collections.abc import Iterator

from partlabel.labels.formats.source import Source

Line = tuple[Source, str, list[str], list[float]]


def read_named(
    path: str | os.PathLike[str], header: list[str], numbers: int | None = None
) -> Iterator[Line]:
    """Lines of names and finite numbers: the source, the place, names and numbers.

    Args:
        path: a text table.
        header: the names of its first columns; the last ``numbers`` of them are numbers.
        numbers: how many; None if all columns after these are.
    """
    source = Source(path)
    expected = ",".join(header) + ("" if numbers else ",number,...")
    if source.kind != "text":
        raise source.error(f"expected a text table: {expected}")
    if [name.lower() for name in source.header[: len(header)]] != header:
        raise source.error(f"expected a header first: {expected}", "line 1")
    width = len(source.header)
    columns = width if numbers is None else len(header)
    named = len(header) - (numbers or 0)
    for place, (number, fields) in enumerate(source.records()):
        line = f"line {number:,}"
        if place == 0:
            continue
        if len(fields) != width:
            raise source.error(f"expected {width} columns, found {len(fields)}", line)
        values = []
        for text in fields[named:columns]:
            try:
                values.append(float(text))
            except ValueError:
                values.append(math.nan)
            if not math.isfinite(values[-1]):
                raise source.error(f"expected a number, found '{text}'", line)
        yield source, line, [name.strip() for name in fields[:named]], values
