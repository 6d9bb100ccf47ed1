"""The commands that change label files: ``convert``, ``merge`` and ``edit``."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from partlabel.base.errors import InputError, PartlabelWarning, count, one_of
from partlabel.cli.labels import (
    READ_HELP,
    WRITE_HELP,
    ExcelSafe,
    Json,
    Labels,
    Output,
    To,
    check_target,
    read,
    report_reading,
    report_written,
)
from partlabel.cli.reading import reads_labels
from partlabel.cli.run_options import IMAGES

if TYPE_CHECKING:
    from partlabel.labels import LabelTable
    from partlabel.labels.formats import ReadOptions
    from partlabel.labels.hierarchy import Implied
    from partlabel.labels.merge_files import MergedFiles
    from partlabel.labels.merge_plan import MergePlan

Rename = Annotated[
    Optional[list[str]],  # noqa: UP045  # typer reads the annotation
    typer.Option(
        "--rename",
        metavar="OLD=NEW",
        help="New name of a class. Repeat it for more classes. Classes that get the same name "
        "become one.",
        show_default=False,
    ),
]
Synonyms = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--synonyms",
        metavar="FILE",
        help="File of classes that are one and the same: one group per line, separated by commas. "
        "The first name of a group is kept.",
        show_default=False,
    ),
]
Hierarchy = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--hierarchy",
        metavar="FILE",
        help="Hierarchy of classes: lines 'child,parent', or the JSON of Open Images. A present "
        "class makes its parents present, an absent class makes its children absent.",
        show_default=False,
    ),
]

Images = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--images",
        metavar="DIR",
        help=f"{IMAGES} If given, each image is named after its file, and rows of one "
        "file become one row, however its name is spelled. (default: names stay as they are)",
        show_default=False,
    ),
]


def convert(
    labels: Annotated[Path, typer.Argument(metavar="IN", help=READ_HELP)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help=WRITE_HELP)],
    to: To = None,
    rename: Rename = None,
    synonyms: Synonyms = None,
    hierarchy: Hierarchy = None,
    images: Images = None,
    excel_safe: ExcelSafe = False,
    as_json: Json = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Convert a label file to another format; warn about information that would be lost.

    Example: partlabel convert instances.json labels.csv --unlisted unknown
    """
    from partlabel.base.terminal import say
    from partlabel.images.named_images import open_images
    from partlabel.labels import formats
    from partlabel.labels.hierarchy import imply, read_hierarchy
    from partlabel.labels.image_names import name_like_files
    from partlabel.labels.label_space import chained, check_renamed, read_synonyms

    check_target(out, to, [labels], excel_safe)
    new_names = _renames(rename)
    same = read_synonyms(synonyms) if synonyms is not None else {}
    tree = read_hierarchy(hierarchy) if hierarchy is not None else None
    files = open_images(images) if images is not None else None
    reading = replace(reading, rename=chained([new_names, same], ignore_case=reading.ignore_case))
    content = read(labels, reading, quiet=as_json)
    check_renamed(new_names, content.file_classes, ignore_case=reading.ignore_case)
    table = content.table
    if files is not None:
        matched = name_like_files(table, files)
        table = matched.table
        if not as_json:
            say(f"files of images: {matched}")
    if tree is not None:
        implied = imply(table, tree)
        _report_implied(implied, quiet=as_json)
        table = implied.table
    lost = formats.write_labels(table, out, to, excel_safe=excel_safe)
    report_written(out, table, lost, as_json)


ConflictRule = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--conflict",
        help="Rule for a label that is present in one file and absent in another, and for an "
        "image in different splits: error (stop and name the first conflict), unknown (drop "
        "both), ours (the earlier file wins) or theirs (the later file wins). (default: error)",
        show_default=False,
    ),
]
Corrections = Annotated[
    bool,
    typer.Option(
        "--corrections",
        help="The files after the first correct it: labels given by humans replace earlier ones, "
        "and a row without a value makes a label unknown. Earlier labels are kept in the file "
        "OUT.journal.csv.",
    ),
]


def merge(
    labels: Annotated[
        list[str],
        typer.Argument(
            metavar="A B ...",
            help="The label files to merge, two or more, or one YAML file that lists them. A file "
            "can have options of its own: FILE:unlisted=absent:origin=NAME:format=FORMAT, and "
            "the other options for reading.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help=WRITE_HELP)],
    conflict: ConflictRule = None,
    corrections: Corrections = False,
    to: To = None,
    rename: Rename = None,
    synonyms: Synonyms = None,
    hierarchy: Hierarchy = None,
    images: Images = None,
    excel_safe: ExcelSafe = False,
    as_json: Json = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Merge label files with any images and classes; labels that no file knows are unknown.

    Options for reading apply to all files that do not have them on their own, and --unlisted only
    to files that list only present classes.

    Example: partlabel merge north.csv south.json:unlisted=absent -o all.csv
    """
    from partlabel.base.terminal import say
    from partlabel.labels import formats
    from partlabel.labels.merge_files import merge_files
    from partlabel.output.display import lost_origins

    plan = _plan(
        labels,
        conflict=conflict,
        synonyms=synonyms,
        hierarchy=hierarchy,
        images=images,
        **asdict(reading) | {"rename": _renames(rename)},
    )
    if corrections and conflict is not None:
        raise InputError("--corrections takes the later label; leave out --conflict")
    if corrections and len(plan.files) < 2:
        raise InputError("--corrections needs a label file, and after it a file that corrects it")
    check_target(out, to, [entry.path for entry in plan.files], excel_safe)
    result = merge_files(
        plan,
        corrections=corrections,
        on_read=lambda entry, file: report_reading(
            entry.path, file, entry.format or plan.format, quiet=as_json
        ),
    )
    _report_merge(result, plan, quiet=as_json)
    table = result.table
    keeps_origins = formats.target_format(out, to).holds_origins
    if not keeps_origins and not result.origins_stated:
        table = table.without_origins()  # names of files, which nobody asked to keep
    numbers = {"conflicts": result.table.conflicts, "split_conflicts": result.table.split_conflicts}
    if corrections:
        write = partial(formats.write_labels, format=to, shown_as=out, excel_safe=excel_safe)
        lost = _write_with_journal(result, table, out, write, quiet=as_json)
        numbers = {"changed": sum(len(step.changes) for step in result.corrected)}
    else:
        lost = formats.write_labels(table, out, to, excel_safe=excel_safe)
    report_written(out, table, lost, as_json, **numbers)
    if not keeps_origins and (danger := lost_origins(result)):
        warnings.warn(danger, PartlabelWarning, stacklevel=2)
    elif not keeps_origins and not as_json:
        say("to keep the origin of each label, write a .parquet file, or use --to cells")


def edit(
    labels: Labels,
    out: Output,
    unknown: Annotated[
        Path,
        typer.Option(
            "--unknown",
            help="File with the columns image and class: these labels become unknown, for example "
            "because an object is hard to recognize.",
        ),
    ],
    to: To = None,
    excel_safe: ExcelSafe = False,
    as_json: Json = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Make some labels of a file unknown.

    Example: partlabel edit labels.csv cleaned.csv --unknown difficult.csv
    """
    from partlabel.base.terminal import say
    from partlabel.labels import formats
    from partlabel.labels.corrections import set_unknown

    check_target(out, to, [labels, unknown], excel_safe)
    table = read(labels, reading, quiet=as_json).table
    table, changed, missing = set_unknown(table, unknown)
    if not as_json:
        say(f"{count(changed, 'label')} became unknown")
    if missing:
        message = f"{unknown}: {count(missing, 'row')} about images that {labels} lacks"
        warnings.warn(message, PartlabelWarning, stacklevel=1)
    lost = formats.write_labels(table, out, to, excel_safe=excel_safe)
    report_written(out, table, lost, as_json, changed=changed, missing=missing)


def _plan(labels: list[str], **options: Any) -> "MergePlan":
    """The files to merge, from a YAML file or from the arguments; options replace the file's."""
    from partlabel.labels import CONFLICT_RULES
    from partlabel.labels.merge_plan import MergePlan, parse_file, read_plan

    options = {name: value for name, value in options.items() if value}
    if "conflict" in options:
        one_of("conflict rule", options["conflict"], CONFLICT_RULES)
    if len(labels) == 1 and Path(labels[0]).suffix.lower() in (".yaml", ".yml"):
        plan = read_plan(Path(labels[0])).model_copy(update=options)
    else:
        plan = MergePlan(files=[parse_file(text) for text in labels], **options)
    if len(plan.files) < 2 and plan.conflict == "error":
        raise InputError(
            "merge needs two label files or more; convert reads one, and merge --conflict "
            "decides between the classes of one file that become one"
        )
    return plan


def _renames(texts: list[str] | None) -> dict[str, str]:
    """The values of ``--rename old=new``; a name with an equals sign needs a YAML file."""
    names: dict[str, str] = {}
    for text in texts or []:
        old, equals, new = text.partition("=")
        if not equals or not old or not new:
            raise InputError(f"--rename {text}: must have the form old=new")
        if old in names:
            raise InputError(f"--rename {old} is given twice")
        names[old] = new
    return names


def _report_merge(result: "MergedFiles", plan: "MergePlan", *, quiet: bool) -> None:
    """Print what each file adds or corrects, and warn about contradictions."""
    from partlabel.base.terminal import say
    from partlabel.labels.merge import different_meanings
    from partlabel.output.display import merge_lines

    for part in result.parts:
        if not quiet and part.matched is not None:
            say(f"{part.entry.path}: files of images: {part.matched}")
    if not quiet and result.corrected:
        for part, step in zip(result.parts[1:], result.corrected, strict=True):
            say(f"{part.entry.path}: {step}")
    elif not quiet:
        say(merge_lines(result, plan.conflict))
    meanings = different_meanings(result.conflicts)
    if meanings:
        warnings.warn(meanings.removeprefix(". "), PartlabelWarning, stacklevel=1)
    if result.implied is not None:
        _report_implied(result.implied, quiet=quiet)


def _report_implied(implied: "Implied", *, quiet: bool) -> None:
    from partlabel.base.terminal import say

    if not quiet:
        say(str(implied))
    if implied.warning():
        warnings.warn(implied.warning(), PartlabelWarning, stacklevel=1)


def _write_with_journal(
    result: "MergedFiles",
    table: "LabelTable",
    out: Path,
    write: Callable[["LabelTable", Path], list[str]],
    *,
    quiet: bool,
) -> list[str]:
    """Write corrected labels, and beside them the journal with the labels that were replaced."""
    from partlabel.base.files import atomic_group
    from partlabel.base.terminal import say
    from partlabel.labels.journal import journal_of, read_journal, write_journal

    journal, first = journal_of(out), result.parts[0].entry.path
    earlier = read_journal(journal) or read_journal(journal_of(first))
    changes = [change for step in result.corrected for change in step.changes]
    with atomic_group([out, journal]) as (new_table, new_journal):
        lost = write(table, new_table)
        write_journal(new_journal, earlier, changes)
    if not quiet:
        say(f"wrote {journal}: {count(len(changes), 'earlier label')} added")
    return lost


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (convert, merge, edit):
        app.command()(reads_labels(command))
