"""How a label file is read: the options that all commands and functions share."""

import csv
import io
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

from partlabel.base.errors import InputError, one_of


class ClassKeywords(TypedDict, total=False):
    """The fields of :class:`ReadOptions` that choose classes, as keyword arguments."""

    ignore_columns: Sequence[str]
    only_classes: Sequence[str]
    min_count: int | None
    rename: Mapping[str, str]
    ignore_case: bool


class ReadKeywords(ClassKeywords, total=False):
    """All fields of :class:`ReadOptions`, for functions that take them as keyword arguments."""

    format: str | None
    unlisted: str | None


@dataclass(frozen=True)
class ReadOptions:
    """How to read a label file.

    Args:
        format: one of ``FORMATS``; None detects it from the content.
        unlisted: the meaning of a class that the file does not list for an image, ``"absent"`` or
            ``"unknown"``. Required for formats that list only present classes. For the others the
            default is unknown.
        ignore_columns: columns of a table that are no classes.
        only_classes: read only these classes; empty for all.
        min_count: leave out classes that are present in fewer images than this; None for no limit.
        rename: new names of classes; classes that get the same name become one.
        ignore_case: whether classes whose names differ only in case are one class, which
            ``rename`` may also spell in any case. It keeps a name that ``rename`` gives, else the
            most frequent one.
    """

    format: str | None = None
    unlisted: str | None = None
    ignore_columns: Sequence[str] = ()
    only_classes: Sequence[str] = ()
    min_count: int | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    ignore_case: bool = False

    def __post_init__(self) -> None:
        if self.unlisted is not None:
            one_of("meaning of unlisted", self.unlisted, ("absent", "unknown"))
        for name in ("ignore_columns", "only_classes"):
            if isinstance(getattr(self, name), str):
                raise InputError(f"{name} must be a list of names, not one text")
        if self.min_count is not None and self.min_count < 1:
            raise InputError(f"--min-count {self.min_count}: must be at least 1")

    def updated(self, others: "ReadOptions") -> "ReadOptions":
        """These options, replaced by others where those are not the default."""
        values = {field.name: getattr(others, field.name) for field in fields(others)}
        default = ReadOptions()
        values = {name: value for name, value in values.items() if value != getattr(default, name)}
        return replace(self, **values)

    def asked_for(self, names: Sequence[str]) -> list[bool]:
        """Whether each of these classes is to be read, by ``only_classes``."""
        key = folded if self.ignore_case else str
        asked = {key(name) for name in self.only_classes}
        return [not asked or key(name) in asked for name in names]


def folded(name: str) -> str:
    """A name without differences in case and in the Unicode form of accents.

    >>> folded("\u00c9t\u00e9") == folded("e\u0301te\u0301")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def read_options(options: ReadOptions | None, keywords: dict[str, Any]) -> ReadOptions:
    """The options of a function that takes them as one object or as keyword arguments.

    The keyword arguments that are options are removed from ``keywords``.
    """
    names = [name for name in keywords if name in ReadOptions.__dataclass_fields__]
    chosen = {name: keywords.pop(name) for name in names}
    if options is not None and chosen:
        raise InputError(f"give {names[0]} in reading=..., or leave that out")
    return options or ReadOptions(**chosen)


def quote_names(names: Sequence[str]) -> str:
    """Names as one argument of a command, separated by commas.

    >>> print(quote_names(["photographer", "place, date"]))
    'photographer,"place, date"'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return shlex.quote(text.getvalue())


def split_names(text: str) -> list[str]:
    """The names in such an argument.

    >>> split_names('photographer,"place, date"')
    ['photographer', 'place, date']
    """
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
