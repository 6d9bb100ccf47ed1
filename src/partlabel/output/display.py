"""What people see of results: a table's classes, what is odd about it, what a merge did."""

import sys
from collections.abc import Iterator

from rich import box
from rich.markup import escape
from rich.table import Table

from partlabel.base.errors import count, some
from partlabel.base.terminal import console, printable, say
from partlabel.judging.completion import Completion
from partlabel.labels import PRESENT, LabelTable
from partlabel.labels.inspection import ClassSummary, Inspection, SplitSummary
from partlabel.metrics import Evaluation

_MOST_CLASSES = 40


def describe(table: LabelTable) -> str:
    """A table in one line."""
    size = f"{count(len(table.ids), 'image')} x {count(len(table.classes), 'class', 'classes')}"
    return f"{size}, {table.known:.1%} of labels known"


def merge_lines(tables: list[LabelTable], merged: LabelTable, rule: str) -> str:
    """What a merge did, and names that look as if they should have met."""
    images = sum(len(table.ids) for table in tables) - len(merged.ids)
    classes = sum(len(table.classes) for table in tables) - len(merged.classes)
    conflicts = merged.conflicts + merged.split_conflicts
    lines = [
        f"merged: {count(images, 'image')} and {count(classes, 'class', 'classes')} met again, "
        f"{count(merged.conflicts, 'label')} and {count(merged.split_conflicts, 'split')} in "
        "conflict" + (f", decided by '{rule}'" if conflicts else "")
    ]
    for kind, names, plain in (
        ("class", merged.classes, str.casefold),
        ("image", merged.ids, lambda name: name.rsplit("/", 1)[-1].rsplit(".", 1)[0]),
    ):
        first: dict[str, str] = {}
        alike = [(first[p], n) for n in names if first.setdefault(p := plain(n), n) != n]
        if alike:
            lines.append(
                f"  note: {count(len(alike), kind + ' name')} like another but not the same, "
                f"such as '{alike[0][1]}' and '{alike[0][0]}'"
            )
    return "\n".join(lines)


def grid(columns: list[tuple[str, bool]], rows: list[list[str]]) -> Table:
    """A table; each column has a title and whether it holds numbers, which are never cut."""
    shape = box.ROUNDED if sys.stdout.isatty() else box.SIMPLE_HEAD
    table = Table(box=shape, header_style="bold")
    for number, (title, numeric) in enumerate(columns):
        widest = max([len(title), *(len(row[number]) for row in rows)])
        table.add_column(
            printable(title),
            justify="right" if numeric else "left",
            no_wrap=True,
            min_width=widest if numeric else None,
        )
    for row in rows:
        table.add_row(*map(printable, row))
    return table


def show_inspection(name: str, found: Inspection, *, every_class: bool = False) -> None:
    """Print an inspection: the classes, then what is odd."""
    out = console()
    size = f"{count(found.images, 'image')} x {count(len(found.classes), 'class', 'classes')}"
    form = f" ({found.notes.format})" if found.notes.format else ""
    out.print(f"[bold]{escape(name)}[/]{escape(form)}: {size}, {found.known:.1%} of labels known")
    shown = found.classes if every_class else found.classes[:_MOST_CLASSES]
    uncertain = any(summary.uncertain for summary in found.classes)
    remarks = bool(found.not_evaluable)
    columns = [("class", False), ("present", True), ("absent", True), ("unknown", True)]
    columns += [("uncertain", True)] if uncertain else []
    columns += [("known", True)]
    columns += [("not evaluable", False)] if remarks else []
    out.print(grid(columns, [_class_row(summary, uncertain, remarks) for summary in shown]))
    hidden = len(found.classes) - len(shown)
    if hidden:
        out.print(f"... and {count(hidden, 'class', 'classes')} more (--all shows them)")
    for line in _findings(found):
        out.print(escape(line))


def _class_row(summary: ClassSummary, uncertain: bool, remarks: bool) -> list[str]:
    numbers = [summary.present, summary.absent, summary.unknown]
    numbers += [summary.uncertain] if uncertain else []
    row = [escape(summary.name), *(f"{n:,}" for n in numbers), f"{summary.known:.1%}"]
    if remarks and not summary.evaluable:
        kinds = [("present", summary.present), ("absent", summary.absent)]
        row.append("none " + " or ".join(kind for kind, n in kinds if not n))
    return row + [""] * (remarks and summary.evaluable)


def split_line(splits: list[SplitSummary]) -> str:
    """The splits in one line."""
    return "splits: " + ", ".join(
        f"{part.name} {count(part.images, 'image')} ({part.known:.1%} known)" for part in splits
    )


def _findings(found: Inspection) -> Iterator[str]:
    if found.splits:
        yield split_line(found.splits)
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


def show_evaluation(result: Evaluation) -> None:
    """Print metrics in percent: per class, then overall."""
    out = console()
    header, rows = result.class_table()
    columns = [(title, number > 0) for number, title in enumerate(header)]
    out.print(grid(columns, [[escape(row[0]), *row[1:]] for row in rows]))
    out.print(escape(result.summary()))


def show_completion(done: Completion) -> None:
    """Print how much is filled in, and the evidence for it."""
    say(done.headline())
    if not any(done.total.values()):
        return
    header, rows = done.evidence()
    console().print(grid([(title, number > 1) for number, title in enumerate(header)], rows))
    if not done.total[PRESENT]:
        say(
            "no present label could be guaranteed: too few of the reserved labels have such high "
            "scores and are correct. More validation images or a lower --min-precision help"
        )
