"""The commands that read or make label files: ``inspect``, ``simulate`` and ``scenes``."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from partlabel.base.errors import PartlabelWarning, count
from partlabel.cli.reading import reads_labels
from partlabel.cli.run_options import IMAGES

if TYPE_CHECKING:
    from partlabel.labels.formats import Reading, ReadOptions

READ_HELP = (
    "The label file to read, or the folder for formats that are folders. file.xlsx#sheet names a "
    "sheet of an Excel file."
)
WRITE_HELP = (
    "The label file to write, or the new folder for voc. An existing file is replaced. A name that "
    "ends with .gz or .zst makes a compressed file."
)

Labels = Annotated[Path, typer.Argument(help=READ_HELP)]
Output = Annotated[Path, typer.Argument(help=WRITE_HELP)]
To = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--to",
        help="Format of the label file to write, with the same choices as --format, except "
        "folders, hf-disk and hf-disk-lists. Use it for .json files, which can have several "
        "formats. (default: chosen by the file name)",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for use in scripts.")]
ExcelSafe = Annotated[
    bool,
    typer.Option(
        "--excel-safe",
        help="In CSV files, write an apostrophe before names that start with =, +, - or @, so that "
        "spreadsheets show them instead of running them as formulas. Reading removes it.",
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", help="Seed of the random choices. The same seed gives the same result."),
]


def inspect(
    labels: Labels,
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help=f"{IMAGES} If given, find the file of each image and decode it, to "
            "report missing and unreadable files. (default: files are not checked)"
        ),
    ] = None,
    every_class: Annotated[
        bool, typer.Option("--all", help="Show all classes, not only the first 40.")
    ] = False,
    split: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Count the labels of this split only. (default: of all images)"),
    ] = None,
    as_json: Json = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Summarise a label file: present, absent and unknown labels per class, and problems.

    Example: partlabel inspect labels.csv --images photos/
    """
    from partlabel.base import terminal
    from partlabel.labels import formats, inspection
    from partlabel.output import display

    content = formats.read_with(labels, reading, strict=False)
    part = None if split is None else content.table.split(split)
    with terminal.progress("checking images", show=images is not None) as progress:
        result = inspection.inspect(content.table, content.notes, images, progress)
    if part is not None:
        result = replace(inspection.inspect(part, content.notes), files=result.files)
    if as_json:
        typer.echo(json.dumps({"path": str(labels), **result.as_json()}, indent=1))
    else:
        display.show_inspection(str(labels), result, every_class=every_class)


Strategy = Annotated[
    str,
    typer.Option(
        "--strategy",
        help="Which labels stay known. partial: each label with probability --proportion. "
        "dense: all labels of a share of the images. noisy: all labels, but a share of them is "
        "inverted. single-positive: one present label per image. positive+negatives: one "
        "present label and all absent labels per image. noisy+: like positive+negatives, but "
        "the other present labels become absent. merged: each part of the images for a part of "
        "the classes. mixed: all labels of some images, one present label of others.",
    ),
]
Proportion = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--proportion",
        help="Share of labels that stay known and correct, from 0 to 1. Required for partial, "
        "dense and noisy; the other strategies take none.",
    ),
]
PerImage = Annotated[
    bool,
    typer.Option(
        "--per-image",
        help="For partial: keep the same number of labels in each image, instead of deciding "
        "for each label separately.",
    ),
]
Parts = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--parts", help="For merged: number of parts. (default: 2)", show_default=False),
]
FullShare = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--full",
        help="For mixed: share of the images that keep all labels. (default: 0.3)",
        show_default=False,
    ),
]
TagShare = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--tags",
        help="For mixed: share of the images that keep one present label. (default: 0.4)",
        show_default=False,
    ),
]
HiddenSplit = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--split",
        help="Hide labels only in this split, usually train, and keep those of the other splits "
        "for evaluation. (default: hide labels in all images)",
    ),
]
Holdout = Annotated[
    float,
    typer.Option(
        "--holdout",
        help="Share of the images (of --split, if given) that keep their labels and move to "
        "the split 'holdout'. Training then uses them for validation, as in the papers.",
    ),
]


def simulate(
    labels: Labels,
    out: Output,
    strategy: Strategy,
    proportion: Proportion = None,
    per_image: PerImage = False,
    parts: Parts = None,
    full: FullShare = None,
    tags: TagShare = None,
    seed: Seed = 0,
    split: HiddenSplit = None,
    holdout: Holdout = 0.0,
    to: To = None,
    excel_safe: ExcelSafe = False,
    as_json: Json = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Hide labels of a fully labelled file, to measure how well methods do without them.

    Example: partlabel simulate labels.csv ten.csv --strategy partial --proportion 0.1 --split train
    """
    from partlabel.base import terminal
    from partlabel.labels import formats, inspection
    from partlabel.labels import simulate as simulation
    from partlabel.output import display

    options = {"parts": parts, "full": full, "tags": tags}
    values: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    simulation.check(strategy, proportion, holdout, per_image=per_image, **values)
    check_target(out, to, [labels], excel_safe)
    truth = read(labels, reading, quiet=as_json).table
    table = simulation.hide(
        truth, strategy, proportion, seed, split, holdout, per_image=per_image, **values
    )
    inverted = int((truth.dense() * table.dense() < 0).sum()) if "noisy" in strategy else 0
    if not formats.target_format(out, to).holds_origins and not len(truth.origins):
        table = table.without_origins()  # the names of parts, which nobody asked to keep
    lost = formats.write_labels(table, out, to, excel_safe=excel_safe)
    if not as_json and table.splits is not None:
        terminal.say(display.split_line(inspection.split_summaries(table)))
    if not as_json and inverted:
        terminal.say(f"inverted labels: {inverted:,}")
    report_written(out, table, lost, as_json, inverted=inverted)


Difficulty = Annotated[
    float,
    typer.Option(
        "--difficulty",
        help="From 0 (large, upright objects, nothing else) to 1 (small, rotated objects, "
        "clutter, noise).",
    ),
]
Tail = Annotated[
    float,
    typer.Option(
        "--tail",
        help="How unequal the class frequencies are. With 0 all classes are equally frequent; "
        "a larger value makes rare classes rarer.",
    ),
]
Context = Annotated[
    float,
    typer.Option(
        "--context",
        help="How many times as likely an object is on its preferred background. With 1 classes "
        "are independent; a larger value makes them co-occur.",
    ),
]
TestShare = Annotated[
    float,
    typer.Option(
        "--test",
        help="Share of the images in the split 'test'; the others are in 'train'. With 0 there "
        "are no splits.",
    ),
]


def scenes(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to write, new or empty.")
    ],
    count: Annotated[int, typer.Option(help="Number of images.")] = 1000,
    classes: Annotated[int, typer.Option(help="Number of classes, from 1 to 40.")] = 20,
    size: Annotated[int, typer.Option(help="Width and height of an image in pixels.")] = 64,
    seed: Seed = 0,
    difficulty: Difficulty = 0.5,
    objects: Annotated[
        float, typer.Option(help="Mean number of objects per image, at least 1.")
    ] = 3.5,
    tail: Tail = 0.6,
    context: Context = 4.0,
    test: TestShare = 0.25,
    as_json: Json = False,
) -> None:
    """Generate images with several objects each, to try out commands and to compare methods.

    Writes DIR/images, DIR/labels.csv with all labels known, and DIR/boxes.csv with all boxes.

    Example: partlabel scenes shapes --count 2000 --classes 12
    """
    from partlabel.base import terminal
    from partlabel.labels import scenes as generator

    world = generator.World(classes, size, seed, difficulty, objects, tail, context)
    with terminal.progress("drawing") as progress:
        table = generator.write(folder, count, world, test, lambda done: progress(done, count))
    report_written(folder / "labels.csv", table, [], as_json)


def read(path: Path, options: "ReadOptions", *, quiet: bool) -> "Reading":
    """Read a label file and print a summary."""
    from partlabel.labels import formats

    reading = formats.read_with(path, options)
    report_reading(path, reading, options.format, quiet=quiet)
    return reading


def report_reading(path: Path, reading: "Reading", format: str | None, *, quiet: bool) -> None:
    """Print a summary of a file that was read."""
    from partlabel.base import terminal
    from partlabel.output import display

    uncertain = sum(reading.notes.uncertain.values())
    if uncertain:
        message = f"{path}: {uncertain:,} labels marked uncertain are read as unknown"
        warnings.warn(message, PartlabelWarning, stacklevel=2)
    if not quiet:
        detected = "" if format else ", detected from the content"
        name = f"{path} ({reading.notes.format}{detected})"
        terminal.say(f"read {name}: {display.describe(reading.table)}")
        if reading.notes.repeated:
            number = len(reading.notes.repeated)
            terminal.say(f"  note: {count(number, 'image')} described more than once")
        for remark in reading.notes.remarks:
            terminal.say(f"  note: {remark}")


def check_excel_safe(out: Path, to: str | None, excel_safe: bool) -> None:
    """Raise an error if the format of a new file is unclear, or ``--excel-safe`` has no effect."""
    from partlabel.base.errors import FileError
    from partlabel.labels.formats import target_format
    from partlabel.output.targets import check_labels_target

    if to is not None:
        check_labels_target(to)
    chosen = target_format(out, to)
    if excel_safe and not chosen.writes_text_table(out):
        raise FileError(
            out,
            f"--excel-safe is for CSV files, and the format '{chosen.name}' writes none here; "
            "leave it out",
        )


def check_target(out: Path, to: str | None, inputs: list[Path], excel_safe: bool = False) -> None:
    """Raise an error for a wrong output path, before anything is read."""
    from partlabel.base.errors import FileError

    check_excel_safe(out, to, excel_safe)
    if any(out.resolve() == path.resolve() for path in inputs):
        raise FileError(out, "is an input file; write to another file")


def report_written(path: Path, table: Any, lost: list[str], as_json: bool, **more: int) -> None:
    """Print the size of the table that was written; ``more`` are further fields of the JSON."""
    from partlabel.base.terminal import say
    from partlabel.output.display import describe

    images, classes = table.shape
    if as_json:
        result = {"path": str(path), "images": images, "classes": classes, "known": table.known}
        typer.echo(json.dumps(result | {"lost": lost} | more))
    elif lost:
        say(f"wrote {path} (with losses, see the warning): {describe(table)}")
    else:
        say(f"wrote {path}: {describe(table)}")


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (inspect, simulate):
        app.command()(reads_labels(command))
    app.command()(scenes)
