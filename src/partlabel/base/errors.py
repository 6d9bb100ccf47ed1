"""What goes wrong, in two kinds: the call or its input is wrong, or the job failed on the way."""

import difflib
from collections.abc import Iterable


class PartlabelError(Exception):
    """An error whose message is meant for the user: what was read, where, and how to mend it."""

    exit_code = 1


class InputError(PartlabelError, ValueError):
    """The call or its input is wrong; nothing was done. Exit code 2."""

    exit_code = 2


class FileError(InputError):
    """A file is wrong; the message starts with its path and the place in it."""

    def __init__(self, path: object, message: str, where: str = "") -> None:
        super().__init__(f"{path}{', ' + where if where else ''}: {message}")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Travels between processes as the error it is a kind of."""
        return InputError, (str(self),)


class JobError(PartlabelError, RuntimeError):
    """The job could not be finished, for example because the disk is full. Exit code 1."""


class PartlabelWarning(UserWarning):
    """Something the user should know about, that does not stop the job."""


def one_of(kind: str, name: str, options: Iterable[str]) -> str:
    """Return ``name`` if it is one of ``options``, else raise an error that suggests the nearest.

    >>> one_of("format", "cv", ["csv"])
    Traceback (most recent call last):
    partlabel.base.errors.InputError: there is no format 'cv'; did you mean 'csv'? (choices: csv)
    """
    options = list(options)
    if name in options:
        return name
    within = [option for option in options if name and option.endswith(name.lower())]
    near = within or difflib.get_close_matches(name.lower(), options, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    shown = ", ".join(options[:20]) + (", ..." if len(options) > 20 else "")
    raise InputError(f"there is no {kind} '{name}'{hint} (choices: {shown or 'none'})")


def some(items: Iterable[object], most: int = 3) -> str:
    """The first few of ``items`` in quotes, and how many more there are.

    >>> some(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    items = list(items)
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return ", ".join(f"'{item}'" for item in items[:most]) + more


def count(number: int, thing: str, things: str = "") -> str:
    """A number with its noun: ``1 image``, ``2,000 images``.

    >>> count(1, "image"), count(2000, "class", "classes")
    ('1 image', '2,000 classes')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
