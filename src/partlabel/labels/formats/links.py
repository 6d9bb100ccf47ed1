"""Links between classes: ``class,linked,weight``, weights relative to a class's own of 1."""

import os
import warnings
from collections.abc import Iterable
from pathlib import Path

from partlabel.base.errors import PartlabelWarning, count, some
from partlabel.labels.formats.delimited import write_delimited
from partlabel.labels.formats.named_numbers import read_named
from partlabel.labels.formats.source import Source

Link = tuple[str, str, float]

_HEADER = ["class", "linked", "weight"]


def read_links(path: str | os.PathLike[str], classes: Iterable[str]) -> list[Link]:
    """Read links; those of other classes are left out with a warning, a mistake is an error.

    So is a file of which nothing is left. A class's link to itself says nothing.
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
        if {name, other} <= wanted and name != other:
            links.append((name, other, weight))
    strangers = sorted({name for pair in first for name in pair} - wanted)
    if not links:
        known = f"; not among the classes: {some(strangers)}" if strangers else ""
        raise Source(path).error(f"has no link between two classes of the labels{known}")
    if strangers:
        warnings.warn(
            f"{path}: links of {count(len(strangers), 'name')} that no class has are left out: "
            f"{some(strangers)}",
            PartlabelWarning,
            stacklevel=2,
        )
    return links


def write_links(path: Path, links: Iterable[Link]) -> None:
    """Write links as they are read."""
    write_delimited(path, _HEADER, links)
