"""Speaking to people: lines, complaints and progress. Imports little, so it answers at once."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def console(stderr: bool = False) -> Console:
    """A console that does not cut lines when its output goes to a file or a pipe."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else 10_000,
        highlight=False,
        emoji=False,
        soft_wrap=not stream.isatty(),
    )


def say(message: str) -> None:
    """Print a line as it is."""
    console().print(escape(message))


def complain(kind: str, message: str, style: str) -> None:
    """Print an error or a warning to standard error."""
    console(stderr=True).print(f"[{style}]{kind}:[/] {escape(message)}")


@contextmanager
def progress(what: str, *, show: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error while the block runs, to be told how many of how many are done."""
    with Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not (show and sys.stderr.isatty()),
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
