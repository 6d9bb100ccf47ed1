"""The journal of a label file: the labels that corrections replaced."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from partlabel.labels.corrections import Change
from partlabel.labels.formats.delimited import write_delimited
from partlabel.labels.formats.packing import unpacked_stem
from partlabel.labels.formats.source import Source

_COLUMNS = [
    *("time", "image", "class", "value", "source", "origin", "asked"),
    *("new_value", "new_source", "new_origin"),
]


def journal_of(path: str | os.PathLike[str]) -> Path:
    """The journal beside a label file.

    >>> journal_of("all.csv").name, journal_of("all.csv.gz").name
    ('all.journal.csv', 'all.journal.csv')
    """
    table = Path(path)
    return table.with_name(f"{unpacked_stem(table)}.journal.csv")


def read_journal(path: Path) -> list[list[str]]:
    """The rows of a journal, none if there is no such file."""
    if not path.is_file():
        return []
    source = Source(path)
    if source.header != _COLUMNS:
        raise source.error(f"is not a journal of corrections; its columns must be {_COLUMNS}")
    return [fields for _, fields in source.records()][1:]


def write_journal(path: Path, earlier: Iterable[list[str]], changes: Iterable[Change]) -> None:
    """Write a journal: the earlier rows, then these changes with the present time."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = ([now, change.image, change.name, *change.old, *change.new] for change in changes)
    write_delimited(path, _COLUMNS, [*earlier, *rows])
