"""Terminal output: lines, warnings, errors and progress bars. Imports little, to start fast."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# control characters but line feed and tab, and marks that change the direction of text
_DIRECTIONS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNPRINTABLE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTIONS}]")


def printable(text: str) -> str:
    r"""Text without characters that control a terminal; they are shown as escape sequences.

    Names of files and classes come from anywhere, and a terminal would obey them.

    >>> printable("a\x1b[31mb"), printable("x\u202ey")
    ('a\\x1b[31mb', 'x\\u202ey')
    """
    return _UNPRINTABLE.sub(lambda match: ascii(match.group())[1:-1], text)


class _SafeConsole(Console):
    """A console that shows control characters in text instead of obeying them."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print text and tables."""
        super().print(
            *(printable(item) if isinstance(item, str) else item for item in objects), **options
        )


def console(stderr: bool = False) -> Console:
    """A console that neither cuts nor wraps lines when its output goes to a file or a pipe."""
    stream = sys.stderr if stderr else sys.stdout
    return _SafeConsole(
        file=stream,
        width=None if stream.isatty() else 10_000,
        highlight=False,
        emoji=False,
        soft_wrap=not stream.isatty(),
    )


def say(message: str) -> None:
    """Print a line to standard output, without markup."""
    console().print(escape(message))


def complain(kind: str, message: str, style: str) -> None:
    """Print an error or a warning to standard error."""
    console(stderr=True).print(f"[{style}]{kind}:[/] {escape(message)}")


@contextmanager
def progress(title: str, *, show: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error while the block runs.

    Without a terminal, print one line when the work starts. Yields a function to be called with the
    number of finished items and the total.
    """
    if show and not sys.stderr.isatty():
        yield _announcing(title)
        return
    with Progress(
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not show,
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _announcing(title: str) -> Callable[[int, int], None]:
    """A progress function that prints one line, once it is known how much is to be done."""
    announced = False

    def announce(_: int, total: int) -> None:
        nonlocal announced
        if not announced:
            console(stderr=True).print(f"{title} ({total:,})", markup=False)
        announced = True

    return announce
