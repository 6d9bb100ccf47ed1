"""Links between classes: ``class,linked,weight``; the weight of a class with itself is 1."""

import os
import warnings
from collections.abc import Iterable
from pathlib import Path

from partlabel.base.errors import PartlabelWarning, some
from partlabel.labels.formats.delimited import write_delimited
from partlabel.labels.formats.named_numbers import read_named
from partlabel.labels.formats.source import Source

Link = tuple[str, str, float]

_HEADER = ["class", "linked", "weight"]


def read_links(path: str | os.PathLike[str], classes: Iterable[str]) -> list[Link]:
    """Read the links between these classes.

    Links of other classes are ignored with a warning; links of a class with itself are ignored. A
    mistake in the file is an error, and so is a file without any link between these classes.
    """
    class_names = set(classes)
    links: list[Link] = []
    first_lines: dict[tuple[str, str], str] = {}
    for source, line, fields, (weight,) in read_named(path, _HEADER, numbers=1):
        name, other = fields
        if weight < 0:
            raise source.error(f"the weight is {weight}; it must not be negative", line)
        if (name, other) in first_lines:
            first = first_lines[name, other]
            raise source.error(f"the link from '{name}' to '{other}' is already in {first}", line)
        first_lines[name, other] = line
        if {name, other} <= class_names and name != other:
            links.append((name, other, weight))
    unknown_names = sorted({name for pair in first_lines for name in pair} - class_names)
    if not links:
        hint = f"; not among the classes: {some(unknown_names)}" if unknown_names else ""
        raise Source(path).error(f"has no link between two classes of the labels{hint}")
    if unknown_names:
        warnings.warn(
            f"{path}: links of names that are not classes are ignored: {some(unknown_names)}",
            PartlabelWarning,
            stacklevel=2,
        )
    return links


def write_links(path: Path, links: Iterable[Link]) -> None:
    """Write links in the format that :func:`read_links` reads."""
    write_delimited(path, _HEADER, links)
