"""The two kinds of errors: the call or its input is wrong, or the job failed while running."""

import difflib
import warnings
from collections.abc import Iterable

from partlabel.base.wording import worded


class PartlabelError(Exception):
    """An error with a message for the user: what is wrong, where, and how to fix it."""

    exit_code = 1

    def __str__(self) -> str:
        return worded(super().__str__())


class InputError(PartlabelError, ValueError):
    """The call or its input is wrong; nothing was done. Exit code 2."""

    exit_code = 2


class FileError(InputError):
    """A file is wrong; the message starts with its path and the location in the file."""

    def __init__(self, path: object, message: str, where: str = "") -> None:
        super().__init__(f"{path}{', ' + where if where else ''}: {message}")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Pickle as an InputError, which needs the message alone."""
        return InputError, (self.args[0],)


class JobError(PartlabelError, RuntimeError):
    """The job could not be finished, for example because the disk is full. Exit code 1."""


class StoppedError(JobError):
    """A signal stopped the job. The exit code is 128 + the number of the signal, as in a shell."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (self.args[0], self.exit_code - 128)


class PartlabelWarning(UserWarning):
    """A problem that the user should know about but that does not stop the job."""

    def __str__(self) -> str:
        return worded(super().__str__())


def warn(message: str) -> None:
    """Warn for the function that calls this, at the line that called that function."""
    warnings.warn(message, PartlabelWarning, stacklevel=3)


def one_of(kind: str, name: str, options: Iterable[str]) -> str:
    """Return ``name`` if it is one of ``options``, else raise an error that suggests the closest.

    >>> one_of("format", "cv", ["csv"])
    Traceback (most recent call last):
    partlabel.base.errors.InputError: there is no format 'cv'; did you mean 'csv'? (choices: csv)
    """
    options = list(options)
    if name in options:
        return name
    same_ending = [option for option in options if name and option.endswith(name.lower())]
    similar = same_ending or difflib.get_close_matches(name.lower(), options, n=1, cutoff=0.5)
    hint = f"; did you mean '{similar[0]}'?" if similar else ""
    choices = ", ".join(options[:20]) + (", ..." if len(options) > 20 else "")
    raise InputError(f"there is no {kind} '{name}'{hint} (choices: {choices or 'none'})")


def some(items: Iterable[object], most: int = 3) -> str:
    """The first ``most`` items in quotes, and the number of the others.

    >>> some(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    items = list(items)
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return ", ".join(f"'{item}'" for item in items[:most]) + more


def data_size(number: int) -> str:
    """A number of bytes with three digits, in the unit that suits it.

    >>> data_size(1_234_000_000), data_size(1_000_000), data_size(52_345), data_size(17)
    ('1.23 GB', '1 MB', '52.3 kB', '17 bytes')
    """
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= scale:
            digits = max(0, 3 - len(str(number // scale)))
            text = f"{number / scale:,.{digits}f}"
            return f"{text.rstrip('0').rstrip('.') if digits else text} {unit}"
    return f"{number} bytes"


def count(number: int, thing: str, things: str = "") -> str:
    """A number with its noun: ``1 image``, ``2,000 images``.

    >>> count(1, "image"), count(2000, "class", "classes")
    ('1 image', '2,000 classes')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def time_left(seconds: float) -> str:
    """An estimate of the time that is left, for the end of a message.

    >>> time_left(180), time_left(10), time_left(7200)
    (' (about 3 min left)', ' (less than 1 min left)', ' (about 2.0 h left)')
    """
    minutes = seconds / 60
    if minutes < 1:
        return " (less than 1 min left)"
    estimate = f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    return f" (about {estimate} left)"
