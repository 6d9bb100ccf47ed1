"""Class names: renaming classes, and classes that are one and the same."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from partlabel.base.errors import InputError, count, one_of
from partlabel.labels.cells import from_triples
from partlabel.labels.combine import Conflict, combine
from partlabel.labels.formats.reading_options import folded
from partlabel.labels.formats.source import Source
from partlabel.labels.names import Names
from partlabel.labels.table import LabelTable


def rename(table: LabelTable, names: Mapping[str, str], conflict: Conflict = "error") -> LabelTable:
    """Give classes other names; classes that get the same name become one.

    Args:
        table: a table; names of classes that it does not have are ignored.
        names: the new name of each class.
        conflict: what to do if classes that become one contradict each other in an image, as in
            :meth:`LabelTable.merge`; the class that comes first in the table is ours.

    >>> table = LabelTable(["a", "b"], ["car", "auto"], [[1, 0], [0, -1]])
    >>> renamed = rename(table, {"auto": "car"})
    >>> list(renamed.classes), renamed.dense().tolist()
    (['car'], [[1], [-1]])
    """
    new_names = [names.get(name, name) for name in table.classes]
    classes = list(dict.fromkeys(new_names))
    if len(classes) == len(new_names):
        return LabelTable.from_cells(table.ids, classes, table.cells, table.splits, table.origins)
    cells, width = table.cells, len(classes)
    to_column = Names(classes).find(new_names)
    index = cells.rows * width + to_column[cells.columns]
    combined = combine(index, cells.values, cells.details, conflict)
    clashes = combined.cell[combined.clash]
    if conflict == "error" and len(clashes):
        row, column = divmod(int(clashes[0]), width)
        name = classes[column]
        olds = [old for old, new in zip(table.classes, new_names, strict=True) if new == name]
        raise InputError(
            f"the classes {' and '.join(f'{old!r}' for old in olds)} become one, but they "
            f"contradict each other in {count(len(clashes), 'image')} (first: "
            f"'{table.ids[row]}'); correct these labels, or keep the classes apart"
        )
    rows, columns = np.divmod(combined.cell, width)
    shape = (len(table), width)
    joined = from_triples(rows, columns, combined.value, shape, combined.details)
    return LabelTable.from_cells(table.ids, classes, joined, table.splits, table.origins)


def check_renamed(
    names: Mapping[str, str], classes: Iterable[str], *, ignore_case: bool = False
) -> None:
    """Raise an error for a class to rename that does not exist, or for an invalid new name."""
    key, known = _key(ignore_case), set(classes)
    keys = {key(name) for name in known}
    for old, new in names.items():
        if key(old) not in keys:
            one_of("class", old, sorted(known))
        if not new.strip():
            raise InputError(f"the class '{old}' cannot be renamed to '{new}'")


def chained(steps: Sequence[Mapping[str, str]], *, ignore_case: bool = False) -> dict[str, str]:
    """New names that are given in several steps, as one step.

    >>> chained([{"auto": "car"}, {"car": "vehicle"}])
    {'auto': 'vehicle', 'car': 'vehicle'}
    """
    key, names = _key(ignore_case), {}
    by_key = [{key(old): new for old, new in step.items()} for step in steps]
    for old in dict.fromkeys(name for step in steps for name in step):
        new = old
        for step, others in zip(steps, by_key, strict=True):
            new = step.get(new, others.get(key(new), new))
        names[old] = new
    return names


def _key(ignore_case: bool) -> Callable[[str], str]:
    """What names of the same class have in common."""
    return folded if ignore_case else str


def read_synonyms(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a file with one group of synonyms per line, separated by commas.

    Returns:
        For each name the first name of its group, which replaces it.
    """
    source = Source(path)
    kept: dict[str, str] = {}
    line_of: dict[str, int] = {}
    for line, fields in source.records():
        names = [field.strip() for field in fields if field.strip()]
        for name in names:
            if name in line_of:
                where = f"lines {line_of[name]:,} and {line:,}"
                raise source.error(f"'{name}' occurs twice; write one line per group", where)
            line_of[name] = line
        kept |= dict.fromkeys(names[1:], names[0])
    if not kept:
        raise source.error("no line has two names; write classes that are one in one line")
    return kept
