"""What people see: tables and progress in a terminal, plain text where there is none."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from partlabel.errors import count, some
from partlabel.inspection import ClassSummary, Inspection
from partlabel.labels import LabelTable

_MOST_CLASSES = 40


def console(stderr: bool = False) -> Console:
    """A console that does not cut lines when its output goes to a file or a pipe."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else 160,
        highlight=False,
        soft_wrap=not stream.isatty(),
    )


def say(message: str) -> None:
    """Print a line as it is."""
    console().print(escape(message))


def complain(kind: str, message: str, style: str) -> None:
    """Print an error or a warning to standard error."""
    console(stderr=True).print(f"[{style}]{kind}:[/] {escape(message)}")


def describe(table: LabelTable) -> str:
    """A table in one line."""
    size = f"{count(len(table.ids), 'image')} x {count(len(table.classes), 'class', 'classes')}"
    return f"{size}, {table.known:.1%} of labels known"


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error while the block runs, to be told how many of how many are done."""
    with Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def grid(columns: Iterable[tuple[str, bool]], rows: Iterable[Iterable[str]]) -> Table:
    """A table; each column has a title and whether it holds numbers."""
    shape = box.ROUNDED if sys.stdout.isatty() else box.SIMPLE_HEAD
    table = Table(box=shape, header_style="bold")
    for title, numeric in columns:
        table.add_column(title, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def show_inspection(name: str, found: Inspection, *, every_class: bool = False) -> None:
    """Print an inspection: the classes, then what is odd."""
    out = console()
    size = f"{count(found.images, 'image')} x {count(len(found.classes), 'class', 'classes')}"
    form = f" ({found.notes.format})" if found.notes.format else ""
    out.print(f"[bold]{escape(name)}[/]{escape(form)}: {size}, {found.known:.1%} of labels known")
    shown = found.classes if every_class else found.classes[:_MOST_CLASSES]
    uncertain = any(summary.uncertain for summary in found.classes)
    columns = [("class", False), ("present", True), ("absent", True), ("unknown", True)]
    columns += [("uncertain", True)] if uncertain else []
    columns += [("known", True), ("", False)]
    out.print(grid(columns, (_class_row(summary, uncertain) for summary in shown)))
    hidden = len(found.classes) - len(shown)
    if hidden:
        out.print(f"... and {count(hidden, 'class', 'classes')} more (--all shows them)")
    for line in _findings(found):
        out.print(escape(line))


def _class_row(summary: ClassSummary, uncertain: bool) -> list[str]:
    why = ""
    if not summary.evaluable:
        kinds = [("present", summary.present), ("absent", summary.absent)]
        why = "cannot be evaluated: none known " + " or ".join(k for k, n in kinds if not n)
    numbers = [summary.present, summary.absent, summary.unknown]
    numbers += [summary.uncertain] if uncertain else []
    return [escape(summary.name), *(f"{n:,}" for n in numbers), f"{summary.known:.1%}", why]


def _findings(found: Inspection) -> Iterator[str]:
    if found.splits:
        yield "splits: " + ", ".join(f"{name} {n:,}" for name, n in found.splits.items())
    yield f"images with nothing known: {found.nothing_known:,}"
    if found.not_evaluable:
        yield f"classes that cannot be evaluated: {len(found.not_evaluable):,}"
    if found.scores:
        yield f"cells with a machine's score: {found.scores:,}"
    if found.from_model:
        yield f"labels that come from a model: {found.from_model:,}"
    repeated = found.notes.repeated
    yield f"images described more than once: {_number(repeated)}"
    contradictions = found.notes.contradictions
    yield f"contradictions: {len(contradictions):,}"
    yield from (f"  {contradiction}" for contradiction in contradictions[:5])
    if len(contradictions) > 5:
        yield f"  ... and {len(contradictions) - 5:,} more (--json lists them)"
    yield from (f"note: {remark}" for remark in found.notes.remarks)
    if found.files is not None:
        yield f"image files in {found.files.folder}: {found.files.found:,} found"
        yield f"  missing: {_number(found.files.missing)}"
        yield f"  unreadable: {_number(list(found.files.unreadable))}"
        for name, why in list(found.files.unreadable.items())[:5]:
            yield f"    {name}: {why}"
        yield f"  not in the label file: {_number(found.files.unmentioned)}"


def _number(names: list[str]) -> str:
    return f"{len(names):,}" + (f" ({some(names)})" if names else "")
