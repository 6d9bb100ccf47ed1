"""Terminal output: lines, warnings, errors and progress bars. Imports little, to start fast."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def console(stderr: bool = False) -> Console:
    """A console that neither cuts nor wraps lines when its output goes to a file or a pipe."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
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

    Yields a function to be called with the number of finished items and the total.
    """
    with Progress(
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not (show and sys.stderr.isatty()),
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
