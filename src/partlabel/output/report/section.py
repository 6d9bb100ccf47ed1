"""A section of the report, and how numbers are written in it."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple


class Picture(NamedTuple):
    """An image: its name, its data address, and kind and text of each line below it."""

    name: str
    image: str
    lines: list[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """A section of the page. ``figure`` is SVG made by the report; all other text is escaped.

    Args:
        title: the heading.
        caption: what is shown, and what to look for.
        figure: SVG.
        header, rows: a table. All columns are numbers, except for the first one.
        words: whether the last column of the table is text too.
        pictures: images in a grid.
    """

    title: str
    caption: str
    figure: str = ""
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    words: bool = False
    pictures: list[Picture] = field(default_factory=list)


def decimal(value: float, digits: int = 1, *, sign: bool = False) -> str:
    """A rounded number, ``-`` for NaN. A number that rounds to zero has no sign.

    >>> decimal(-0.04), decimal(0.04, sign=True), decimal(0.26, sign=True), decimal(float("nan"))
    ('0.0', '0.0', '+0.3', '-')
    """
    if math.isnan(value):
        return "-"
    rounded = round(value, digits) + 0.0  # turns -0.0 into 0.0
    return f"{rounded:{'+' if sign and rounded else ''}.{digits}f}"


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.1234)
    '12.3'
    """
    return decimal(100 * share)


def whole_percent(score: float) -> str:
    """A score in whole percent. Only certain scores are 0% or 100%.

    >>> whole_percent(0.001), whole_percent(0.456), whole_percent(0.999), whole_percent(1.0)
    ('<1%', '46%', '>99%', '100%')
    """
    if 0 < score < 0.005:
        return "<1%"
    if 0.995 <= score < 1:
        return ">99%"
    return f"{100 * score:.0f}%"


def listed(names: list[str], most: int = 40) -> str:
    """Names in one line, and the number of those that are left out.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
