"""The commands for label files: ``inspect``, ``convert``, ``merge``, ``simulate``, ``scenes``."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from partlabel.base.errors import PartlabelWarning, count

if TYPE_CHECKING:
    from partlabel.labels.formats import Reading

_FORMATS = "csv, cells, open-images, coco, lvis, voc, label-studio, hf, chexpert or arrow"
_READ_HELP = "The label file to read, or the folder for voc and hf."
_WRITE_HELP = "The label file to write, or the new folder for voc. An existing file is replaced."

Labels = Annotated[Path, typer.Argument(help=_READ_HELP)]
Output = Annotated[Path, typer.Argument(help=_WRITE_HELP)]
Format = Annotated[
    Optional[str],  # noqa: UP045  # typer reads the annotation
    typer.Option(
        "--format",
        help=f"Format of the label file to read: {_FORMATS}. "
        "Use it if a file matches several formats, or none. (default: detected from the content)",
    ),
]
To = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--to",
        help="Format of the label file to write, with the same choices as --format. Use it for "
        ".json files, which can have several formats. (default: chosen by the file name)",
    ),
]
Unlisted = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--unlisted",
        help="Meaning of a class that the file does not list for an image: absent (annotators "
        "checked every class) or unknown (nobody checked it). Required for coco and voc, which "
        "list only present classes. (default for other formats: unknown)",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for use in scripts.")]
Seed = Annotated[
    int,
    typer.Option("--seed", help="Seed of the random choices. The same seed gives the same result."),
]


def inspect(
    labels: Labels,
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Folder of the images. If given, find the file of each image and decode it, to "
            "report missing and unreadable files. (default: files are not checked)"
        ),
    ] = None,
    format: Format = None,
    unlisted: Unlisted = None,
    every_class: Annotated[
        bool, typer.Option("--all", help="Show all classes, not only the first 40.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Summarise a label file: present, absent and unknown labels per class, and problems.

    Example: partlabel inspect labels.csv --images photos/
    """
    from partlabel.base import terminal
    from partlabel.labels import formats, inspection
    from partlabel.output import display

    reading = formats.read(labels, format, unlisted, strict=False)
    with terminal.progress("checking images", show=images is not None) as progress:
        result = inspection.inspect(reading.table, reading.notes, images, progress)
    if as_json:
        typer.echo(json.dumps({"path": str(labels), **result.as_json()}, indent=1))
    else:
        display.show_inspection(str(labels), result, every_class=every_class)


def convert(
    labels: Annotated[
        Path,
        typer.Argument(metavar="IN", help=_READ_HELP),
    ],
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help=_WRITE_HELP),
    ],
    format: Format = None,
    to: To = None,
    unlisted: Unlisted = None,
    as_json: Json = False,
) -> None:
    """Convert a label file to another format; warn about information that would be lost.

    Example: partlabel convert instances.json labels.csv --unlisted unknown
    """
    from partlabel.labels import formats

    _check_target(out, to, [labels])
    reading = _read(labels, format, unlisted, quiet=as_json)
    lost = formats.write_labels(reading.table, out, to)
    _report_written(out, reading.table, lost, as_json)


ConflictRule = Annotated[
    str,
    typer.Option(
        "--conflict",
        help="Rule for a label that is present in one file and absent in another, and for an "
        "image in different splits: error (stop and name the first conflict), unknown (drop "
        "both), ours (the earlier file wins) or theirs (the later file wins).",
    ),
]


def merge(
    labels: Annotated[
        list[Path],
        typer.Argument(metavar="A B ...", help="The label files to merge, two or more."),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help=_WRITE_HELP),
    ],
    conflict: ConflictRule = "error",
    format: Format = None,
    to: To = None,
    unlisted: Unlisted = None,
    as_json: Json = False,
) -> None:
    """Merge label files with any images and classes; labels that no file knows are unknown.

    --format applies to all files, --unlisted only to files that list only present classes.

    Example: partlabel merge cats.csv dogs.csv -o both.csv
    """
    from partlabel.base.errors import InputError, one_of
    from partlabel.base.terminal import say
    from partlabel.labels import CONFLICT_RULES, formats
    from partlabel.labels import merge as merge_tables
    from partlabel.output.display import merge_lines

    rule: Any = one_of("conflict rule", conflict, CONFLICT_RULES)
    if len(labels) < 2:
        raise InputError("merge needs two label files or more")
    _check_target(out, to, labels)
    tables = []
    for path in labels:
        # other formats state absent labels themselves, so their unlisted labels stay unknown
        unlisted_here = unlisted if formats.needs_unlisted(path, format) else None
        tables.append(_read(path, format, unlisted_here, quiet=as_json).table)
    merged = merge_tables(tables, rule)
    if not as_json:
        say(merge_lines(tables, merged, rule))
    lost = formats.write_labels(merged, out, to)
    conflicts = {"conflicts": merged.conflicts, "split_conflicts": merged.split_conflicts}
    _report_written(out, merged, lost, as_json, **conflicts)


Strategy = Annotated[
    str,
    typer.Option(
        "--strategy",
        help="Which labels stay known. partial: each label with probability --proportion. "
        "dense: all labels of a share of the images. noisy: all labels, but a share of them is "
        "inverted. single-positive: one present label per image. positive+negatives: one "
        "present label and all absent labels per image. noisy+: like positive+negatives, but "
        "the other present labels become absent.",
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
    seed: Seed = 0,
    split: HiddenSplit = None,
    holdout: Holdout = 0.0,
    format: Format = None,
    to: To = None,
    unlisted: Unlisted = None,
    as_json: Json = False,
) -> None:
    """Hide labels of a fully labelled file, to measure how well methods do without them.

    Example: partlabel simulate labels.csv ten.csv --strategy partial --proportion 0.1 --split train
    """
    from partlabel.base import terminal
    from partlabel.labels import formats, inspection
    from partlabel.labels import simulate as simulation
    from partlabel.output import display

    simulation.check(strategy, proportion, holdout, per_image=per_image)
    _check_target(out, to, [labels])
    full = _read(labels, format, unlisted, quiet=as_json).table
    table = simulation.hide(full, strategy, proportion, seed, split, holdout, per_image=per_image)
    inverted = int((full.dense() * table.dense() < 0).sum()) if "noisy" in strategy else 0
    lost = formats.write_labels(table, out, to)
    if not as_json and table.splits is not None:
        terminal.say(display.split_line(inspection.split_summaries(table)))
    if not as_json and inverted:
        terminal.say(f"inverted labels: {inverted:,}")
    _report_written(out, table, lost, as_json, inverted=inverted)


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
    _report_written(folder / "labels.csv", table, [], as_json)


def _read(path: Path, format: str | None, unlisted: str | None, *, quiet: bool) -> "Reading":
    """Read a label file and print a summary."""
    from partlabel.base import terminal
    from partlabel.labels import formats
    from partlabel.output import display

    reading = formats.read(path, format, unlisted)
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
    return reading


def _check_target(out: Path, to: str | None, inputs: list[Path]) -> None:
    """Raise an error for a wrong output path, before anything is read."""
    from partlabel.base.errors import FileError
    from partlabel.labels.formats import target_format

    target_format(out, to)
    if any(out.resolve() == path.resolve() for path in inputs):
        raise FileError(out, "is an input file; write to another file")


def _report_written(path: Path, table: Any, lost: list[str], as_json: bool, **more: int) -> None:
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
    for command in (inspect, convert, merge, simulate, scenes):
        app.command()(command)
