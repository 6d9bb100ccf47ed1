"""Renaming classes while a file is read: classes that get the same name become one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from partlabel.base.errors import InputError
from partlabel.labels import Names
from partlabel.labels.combine import Conflict
from partlabel.labels.formats.reading_options import ReadOptions, folded
from partlabel.labels.formats.stated import Notes, Stated, settle


def join_classes(
    stated: Stated, options: ReadOptions, conflict: Conflict, *, strict: bool
) -> Stated:
    """Rename and join classes as the options say, before labels that are not listed are filled in.

    Joining them later would be too late: a file that lists only ``Cat`` for an image would already
    state that ``cat`` is absent there.

    Args:
        stated: the statements of a file.
        options: ``rename`` and ``ignore_case`` are used.
        conflict: what to do if classes that become one contradict each other in an image.
        strict: whether the rule ``"error"`` raises an error; if not, such a label becomes unknown,
            and is noted.
    """
    if not options.rename and not options.ignore_case:
        return stated
    old = list(stated.classes)
    new = _new_names(stated, options)
    _note_names(stated.notes, dict(zip(old, new, strict=True)))
    classes = list(dict.fromkeys(new))
    if len(classes) == len(old):
        return replace(stated, classes=Names(classes))
    once = settle(stated, strict=strict)  # a class that contradicts itself is an error by any rule
    to_column = Names(classes).find(new)
    joined = replace(
        once,
        classes=Names(classes),
        label=to_column[once.label],
        record=np.arange(len(once.label)),
        where=lambda statements: _places(once, statements),
    )
    try:
        return settle(joined, strict=strict, conflict=conflict)
    except InputError as error:
        rules = "merge with --conflict ours, theirs or unknown"
        raise InputError(f"{error}, keep the two classes apart, or {rules}") from None


def _note_names(notes: Notes, names: dict[str, str]) -> None:
    """Note the new names, and use them in what is noted already."""
    uncertain, notes.uncertain = notes.uncertain, {}
    for name, number in uncertain.items():
        new = names.get(name, name)  # a class that is not asked for has no new name
        notes.uncertain[new] = notes.uncertain.get(new, 0) + number
    notes.names = names


def _places(stated: Stated, statements: Sequence[int]) -> list[str]:
    """The places of statements in the file, with the classes that the file has there."""
    records = statements if stated.record is None else stated.record[list(statements)].tolist()
    names = [stated.classes[int(stated.label[number])] for number in statements]
    return [
        f"'{name}' in {location}"
        for name, location in zip(names, stated.where(records), strict=True)
    ]


def differing_in_case(names: Iterable[str]) -> list[list[str]]:
    """Groups of names that differ only in case.

    >>> differing_in_case(["cat", "dog", "Cat"])
    [['cat', 'Cat']]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(folded(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _new_names(stated: Stated, options: ReadOptions) -> list[str]:
    """The new name of each class."""
    names = [options.rename.get(name, name) for name in stated.classes]
    if not options.ignore_case:
        return names
    by_folded = {folded(old): new for old, new in options.rename.items()}
    names = [options.rename.get(name, by_folded.get(folded(name), name)) for name in stated.classes]
    statements = np.bincount(stated.label, minlength=len(names))
    new_names = set(options.rename.values())
    kept: dict[str, tuple[tuple[bool, int], str]] = {}
    for name, number in zip(names, statements.tolist(), strict=True):
        rank = (name in new_names, number)
        if folded(name) not in kept or rank > kept[folded(name)][0]:
            kept[folded(name)] = rank, name
    return [kept[folded(name)][1] for name in names]
