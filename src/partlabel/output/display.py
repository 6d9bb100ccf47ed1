"""Output of results in a terminal: inspections, merges, metrics and completions."""

import sys
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from partlabel.base.errors import count, some
from partlabel.base.terminal import console, printable, say
from partlabel.images.matching import describe as spelling_line
from partlabel.judging.completion import Completion
from partlabel.labels import PRESENT, LabelTable
from partlabel.labels.formats.reading_options import folded
from partlabel.labels.inspection import ClassSummary, Inspection, SplitSummary
from partlabel.labels.merge_files import MergedFiles
from partlabel.labels.origins import OriginSummary
from partlabel.metrics import Evaluation

_MAX_CLASSES = 40  # of an inspection, unless all are asked for
_MAX_MEASURED = 200  # classes of an evaluation
_MAX_ORIGINS = 6  # columns of a table


def describe(table: LabelTable) -> str:
    """The size of a table and the share of known labels, in one line."""
    return describe_size(*table.shape, int(np.count_nonzero(table.cells.values)))


def describe_size(images: int, classes: int, known: int) -> str:
    """Numbers of images and classes, and the share of labels that are known, in one line."""
    size = f"{count(images, 'image')} x {count(classes, 'class', 'classes')}"
    return f"{size}, {known / max(images * classes, 1):.1%} of labels known"


def lost_origins(result: MergedFiles) -> str:
    """Why the guarantee of ``complete`` needs the origins of these labels; empty if it does not."""
    names = result.origins_of_presences
    if not names:
        return ""
    return (
        f"{some(names)} {'has' if len(names) == 1 else 'have'} present labels only, other files "
        "have both kinds. Without origins, `complete` takes all labels for a random sample, and "
        "its guarantee may fail: write a .parquet file, or use --to cells"
    )


def merge_lines(result: MergedFiles, rule: str) -> str:
    """What each file adds, what coincides or conflicts, and which names are similar."""
    merged, tables = result.table, [part.table for part in result.parts]
    images = sum(len(table.ids) for table in tables) - len(merged.ids)
    classes = sum(len(table.classes) for table in tables) - len(merged.classes)
    conflicts = merged.conflicts + merged.split_conflicts
    lines = [
        f"{part.entry.path} (origin '{part.origin}') adds {count(added.images, 'image')}, "
        f"{count(added.classes, 'class', 'classes')} and {count(added.labels, 'label')}"
        for part, added in zip(result.parts, result.contributions, strict=True)
    ]
    lines.append(
        f"merged: {count(images, 'repeated image')}, "
        f"{count(classes, 'repeated class', 'repeated classes')}, "
        f"{count(merged.conflicts, 'label')} and {count(merged.split_conflicts, 'split')} in "
        "conflict" + (f", resolved by the rule '{rule}'" if conflicts else "")
    )
    if result.overruled:
        number = count(result.overruled, "label")
        lines.append(f"  note: {number} of a model contradict a human's, which is kept")
    for kind, names, simplify, remedy in (
        ("class", merged.classes, folded, "--ignore-case"),
        ("image", merged.ids, _without_folder_and_ending, "--images DIR"),
    ):
        pairs = _similar_names(names, simplify)
        if pairs:
            first, second = pairs[0]
            lines.append(
                f"  note: {count(len(pairs), 'pair')} of similar {kind} names, such as '{first}' "
                f"and '{second}'; if they are the same {kind}, join them with {remedy}"
            )
    return "\n".join(lines)


def _without_folder_and_ending(name: str) -> str:
    return name.rsplit("/", 1)[-1].rsplit(".", 1)[0]


def _similar_names(names: Iterable[str], simplify: Callable[[str], str]) -> list[tuple[str, str]]:
    """Pairs of different names that are equal once they are simplified."""
    first: dict[str, str] = {}
    pairs = []
    for name in names:
        earlier = first.setdefault(simplify(name), name)
        if earlier != name:
            pairs.append((earlier, name))
    return pairs


def grid(columns: list[tuple[str, bool]], rows: list[list[str]]) -> Table:
    """A table for a terminal; each column has a title, and whether it holds numbers.

    Numbers are never cut if the terminal is narrow.
    """
    shape = box.ROUNDED if sys.stdout.isatty() else box.SIMPLE_HEAD
    table = Table(box=shape, header_style="bold")
    for j, (title, numeric) in enumerate(columns):
        widest = max([len(title), *(len(row[j]) for row in rows)])
        table.add_column(
            printable(title),
            justify="right" if numeric else "left",
            no_wrap=True,
            min_width=widest if numeric else None,
        )
    for row in rows:
        table.add_row(*map(printable, row))
    return table


def show_inspection(name: str, inspection: Inspection, *, every_class: bool = False) -> None:
    """Print an inspection: the classes, then problems and other findings."""
    out, classes = console(), inspection.classes
    size = f"{count(inspection.images, 'image')} x {count(len(classes), 'class', 'classes')}"
    form = f" ({inspection.notes.format})" if inspection.notes.format else ""
    known = f"{inspection.known:.1%} of labels known"
    out.print(f"[bold]{escape(name)}[/]{escape(form)}: {size}, {known}")
    listed = classes if every_class else classes[:_MAX_CLASSES]
    uncertain = any(summary.uncertain for summary in classes)
    remarks = bool(inspection.not_evaluable)
    columns = [("class", False), ("present", True), ("absent", True), ("unknown", True)]
    columns += [("uncertain", True)] if uncertain else []
    columns += [("known", True)]
    columns += [("not evaluable", False)] if remarks else []
    out.print(grid(columns, [_class_row(summary, uncertain, remarks) for summary in listed]))
    hidden = len(classes) - len(listed)
    if hidden:
        out.print(f"... and {count(hidden, 'class', 'classes')} more (--all shows them)")
    if inspection.origins:
        _show_origins(inspection.origins, [summary.name for summary in listed])
    for line in _findings(inspection):
        out.print(escape(line))


def _show_origins(origins: list[OriginSummary], classes: list[str]) -> None:
    """Print which origin noted presences or absences of which class."""
    listed = origins[:_MAX_ORIGINS]
    words = {"both": "both", "presences": "present only", "absences": "absent only"}
    rows = [
        [
            escape(name),
            *(words[origin.noted[name].kind] if name in origin.noted else "" for origin in listed),
        ]
        for name in classes
    ]
    columns = [("noted by", False), *((escape(origin.name), False) for origin in listed)]
    console().print(grid(columns, rows))
    if len(origins) > len(listed):
        number = count(len(origins) - len(listed), "origin")
        console().print(f"... and {number} more (--json lists them)")


def _class_row(summary: ClassSummary, uncertain: bool, remarks: bool) -> list[str]:
    """The row of a class; ``uncertain`` and ``remarks`` say whether there are such columns."""
    numbers = [summary.present, summary.absent, summary.unknown]
    if uncertain:
        numbers.append(summary.uncertain)
    row = [escape(summary.name), *(f"{number:,}" for number in numbers), f"{summary.known:.1%}"]
    if remarks:
        kinds = [("present", summary.present), ("absent", summary.absent)]
        missing = " or ".join(kind for kind, number in kinds if not number)
        row.append(f"none {missing}" if missing else "")
    return row


def split_line(splits: list[SplitSummary]) -> str:
    """The number of images and the share of known labels of each split, in one line."""
    return "splits: " + ", ".join(
        f"{part.name} {count(part.images, 'image')} ({part.known:.1%} known)" for part in splits
    )


def _findings(inspection: Inspection) -> Iterator[str]:
    """Findings in an inspection, one line each."""
    if inspection.splits:
        yield split_line(inspection.splits)
    if len(inspection.splits) > 1:
        yield "  the table counts all of them together; --split NAME counts one"
    yield f"images without known labels: {inspection.nothing_known:,}"
    if inspection.not_evaluable:
        yield f"classes that cannot be evaluated: {len(inspection.not_evaluable):,}"
    if inspection.scores:
        yield f"cells with a model's score: {inspection.scores:,}"
    if inspection.from_model:
        yield f"labels given by a model: {inspection.from_model:,}"
    for kind, number in inspection.asked.items():
        if number:
            yield f"labels asked for ({kind}): {number:,}"
    yield from filter(None, (origin.suspicion() for origin in inspection.origins))
    yield from (one.describe() for one in inspection.mixed_tags)
    repeated = inspection.notes.repeated
    yield f"images described more than once: {_number_and_names(repeated)}"
    contradictions = inspection.notes.contradictions
    yield f"contradictions: {len(contradictions):,}"
    yield from (f"  {contradiction}" for contradiction in contradictions[:5])
    if len(contradictions) > 5:
        yield f"  ... and {len(contradictions) - 5:,} more (--json lists them)"
    yield from (f"note: {remark}" for remark in inspection.notes.remarks)
    if inspection.files is not None:
        yield f"image files in {inspection.files.folder}: {inspection.files.found:,} found"
        if inspection.files.spellings:
            yield f"  spelled differently: {spelling_line(inspection.files.spellings)}"
        if inspection.files.shared:
            yield f"  {_shared_line(inspection.files.shared)}"
        yield f"  missing: {_number_and_names(inspection.files.missing)}"
        yield f"  unreadable: {_number_and_names(list(inspection.files.unreadable))}"
        for name, why in list(inspection.files.unreadable.items())[:5]:
            yield f"    {name}: {why}"
        yield f"  not in the label file: {_number_and_names(inspection.files.unmentioned)}"


def _shared_line(shared: dict[str, list[str]]) -> str:
    """How many files have several names in the label file, and what to do about it."""
    file, names = next(iter(shared.items()))
    return (
        f"with several names in the label file: {len(shared):,} (such as {file}: {some(names)}); "
        "convert --images gives each file one name"
    )


def _number_and_names(names: list[str]) -> str:
    """How many names there are, and the first of them."""
    return f"{len(names):,}" + (f" ({some(names)})" if names else "")


def show_evaluation(result: Evaluation) -> None:
    """Print metrics in percent: per class, then overall."""
    out = console()
    header, rows = result.class_table()
    columns = [(title, j > 0) for j, title in enumerate(header)]
    out.print(grid(columns, [[escape(row[0]), *row[1:]] for row in rows[:_MAX_MEASURED]]))
    if len(rows) > _MAX_MEASURED:
        number = count(len(rows) - _MAX_MEASURED, "class", "classes")
        out.print(f"... and {number} more (--json FILE has them all)")
    out.print(escape(result.summary()))


def show_completion(completion: Completion) -> None:
    """Print how much is filled in, and the evidence for it."""
    say(completion.headline())
    if not any(completion.total.values()):
        return
    header, rows = completion.evidence()
    console().print(grid([(title, j > 1) for j, title in enumerate(header)], rows))
    if not completion.total[PRESENT]:
        say(
            "no present label could be guaranteed: too few of the held-out labels have such high "
            "scores and are correct. More labels or a lower --min-precision help"
        )
