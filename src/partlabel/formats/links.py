"""Links between classes: ``class,linked,weight``, weights relative to a class's own of 1."""

import os
from collections.abc import Iterable
from pathlib import Path

from partlabel.errors import some
from partlabel.formats.delimited import write_delimited
from partlabel.formats.named_numbers import read_named
from partlabel.formats.source import Source

Link = tuple[str, str, float]

_HEADER = ["class", "linked", "weight"]


def read_links(path: str | os.PathLike[str], classes: Iterable[str]) -> list[Link]:
    """Read links; those of a class that is not asked for are left out, a mistake is an error.

    So is a file of which nothing is left.
    """
    wanted = set(classes)
    links: list[Link] = []
    first: dict[tuple[str, str], str] = {}
    for source, line, fields, (weight,) in read_named(path, _HEADER, numbers=1):
        name, other = fields
        if weight < 0:
            raise source.error(f"a link has weight {weight}: must not be negative", line)
        if (name, other) in first:
            raise source.error(f"'{name}' to '{other}' again, as in {first[name, other]}", line)
        first[name, other] = line
        if {name, other} <= wanted:
            links.append((name, other, weight))
    if first and not links:
        raise Source(path).error(
            f"links none of the classes {some(sorted(wanted))}; names must be the same, such as "
            f"{some(next(iter(first)))}"
        )
    return links


def write_links(path: Path, links: Iterable[Link]) -> None:
    """Write links as they are read."""
    write_delimited(path, _HEADER, links)
