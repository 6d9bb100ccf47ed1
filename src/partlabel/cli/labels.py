"""Commands around label files: ``inspect``, ``convert``, ``merge``, ``simulate``, ``scenes``."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from partlabel.base.errors import PartlabelWarning

if TYPE_CHECKING:
    from partlabel.labels.formats import Reading

Labels = Annotated[Path, typer.Argument(help="A label file, or a folder for formats that are one.")]
Output = Annotated[Path, typer.Argument(help="Where to write; an existing file is replaced.")]
Format = Annotated[
    Optional[str],  # noqa: UP045  # typer reads the annotation
    typer.Option(
        "--format",
        help="csv, cells, open-images, coco, lvis, voc, label-studio, hf, chexpert or arrow; "
        "decided by content if not given.",
    ),
]
To = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--to", help="Format to write; decided by the file's ending if not given."),
]
Unlisted = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--unlisted",
        help="What a class is where the file does not list it: absent or unknown. "
        "Needed by coco and voc, which list only what is present; merge uses it for these alone.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Seed = Annotated[int, typer.Option("--seed", help="Another seed gives another draw.")]


def inspect(
    labels: Labels,
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of the images: each is looked for and decoded."),
    ] = None,
    format: Format = None,
    unlisted: Unlisted = None,
    every_class: Annotated[bool, typer.Option("--all", help="Show every class.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a label file knows: per class present, absent and unknown, and what is wrong.

    Example: partlabel inspect labels.csv --images photos/
    """
    from partlabel.base import terminal
    from partlabel.labels import formats, inspection
    from partlabel.output import display

    reading = formats.read(labels, format, unlisted, strict=False)
    with terminal.progress("checking images", show=images is not None) as progress:
        found = inspection.inspect(reading.table, reading.notes, images, progress)
    if as_json:
        typer.echo(json.dumps({"path": str(labels), **found.as_json()}, indent=1))
    else:
        display.show_inspection(str(labels), found, every_class=every_class)


def convert(
    labels: Annotated[Path, typer.Argument(metavar="IN", help="The label file to read.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Where to write; replaced if there.")],
    format: Format = None,
    to: To = None,
    unlisted: Unlisted = None,
    as_json: Json = False,
) -> None:
    """Write a label file in another format; warns of what that format cannot hold.

    Example: partlabel convert instances.json labels.csv --unlisted unknown
    """
    from partlabel.labels import formats

    _check_target(out, to, [labels])
    reading = _read(labels, format, unlisted, quiet=as_json)
    _wrote(out, reading.table, formats.write_labels(reading.table, out, to), as_json)


def merge(
    labels: Annotated[list[Path], typer.Argument(metavar="A B ...", help="Label files.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write; replaced if there.")],
    conflict: Annotated[
        str,
        typer.Option(
            help="A label that is present in one file and absent in another, or an image in "
            "different splits: error, unknown (neither), ours (the earlier file) or theirs."
        ),
    ] = "error",
    format: Format = None,
    to: To = None,
    unlisted: Unlisted = None,
    as_json: Json = False,
) -> None:
    """Join label files of any images and classes into one; what none of them knows stays unknown.

    Example: partlabel merge cats.csv dogs.csv -o both.csv
    """
    from partlabel.base.errors import InputError, one_of
    from partlabel.base.terminal import say
    from partlabel.labels import CONFLICT_RULES, formats
    from partlabel.labels import merge as join
    from partlabel.output.display import merge_lines

    rule: Any = one_of("conflict rule", conflict, CONFLICT_RULES)
    if len(labels) < 2:
        raise InputError("merge needs two label files or more")
    _check_target(out, to, labels)
    tables = []
    for path in labels:
        # a file that can say "absent" itself is not filled up because another cannot
        meaning = unlisted if formats.needs_unlisted(path, format) else None
        tables.append(_read(path, format, meaning, quiet=as_json).table)
    merged = join(tables, rule)
    if not as_json:
        say(merge_lines(tables, merged, rule))
    lost = formats.write_labels(merged, out, to)
    conflicts = {"conflicts": merged.conflicts, "split_conflicts": merged.split_conflicts}
    _wrote(out, merged, lost, as_json, **conflicts)


def simulate(
    labels: Labels,
    out: Output,
    strategy: Annotated[
        str,
        typer.Option(
            help="partial (each label kept with the proportion), dense (whole images), noisy (the "
            "others turned round), noisy+ (one present kept, the others called absent), "
            "single-positive (one present kept, nothing else), positive+negatives (one present "
            "and all absent)."
        ),
    ],
    proportion: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Share of labels that stay right and known (partial, dense, noisy)."),
    ] = None,
    per_image: Annotated[
        bool, typer.Option("--per-image", help="partial: keep the same number in each image.")
    ] = False,
    seed: Seed = 0,
    split: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Hide labels only in this split; other images stay as they are."),
    ] = None,
    holdout: Annotated[
        float,
        typer.Option(help="Share of the split that keeps its labels and becomes split 'holdout'."),
    ] = 0.0,
    format: Format = None,
    to: To = None,
    unlisted: Unlisted = None,
    as_json: Json = False,
) -> None:
    """Hide labels of a fully labelled file, to study what methods make of the rest.

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
    turned = int((full.dense() * table.dense() < 0).sum()) if "noisy" in strategy else 0
    lost = formats.write_labels(table, out, to)
    if not as_json and table.splits is not None:
        terminal.say(display.split_line(inspection.split_summaries(table)))
    if not as_json and turned:
        terminal.say(f"labels turned round: {turned:,}")
    _wrote(out, table, lost, as_json, turned=turned)


def scenes(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    count: Annotated[int, typer.Option(help="Number of pictures.")] = 1000,
    classes: Annotated[int, typer.Option(help="Number of classes, at most 40.")] = 20,
    size: Annotated[int, typer.Option(help="Pixels on a side.")] = 64,
    seed: Seed = 0,
    difficulty: Annotated[float, typer.Option(help="From 0 (easy) to 1 (hard).")] = 0.5,
    objects: Annotated[float, typer.Option(help="Mean number of objects in a picture.")] = 3.5,
    tail: Annotated[
        float, typer.Option(help="How much rarer some classes are than others; 0 for not at all.")
    ] = 0.6,
    context: Annotated[
        float,
        typer.Option(
            help="How much likelier an object is in its own kind of place than elsewhere."
        ),
    ] = 4.0,
    test: Annotated[float, typer.Option(help="Share of pictures in the split 'test'.")] = 0.25,
    as_json: Json = False,
) -> None:
    """Make pictures with many objects, and the labels and boxes of all of them.

    Writes DIR/images, DIR/labels.csv and DIR/boxes.csv.
    """
    from partlabel.base import terminal
    from partlabel.labels import scenes as generated

    world = generated.World(classes, size, seed, difficulty, objects, tail, context)
    with terminal.progress("drawing") as progress:
        table = generated.write(folder, count, world, test, lambda done: progress(done, count))
    _wrote(folder / "labels.csv", table, [], as_json)


def _read(path: Path, format: str | None, unlisted: str | None, *, quiet: bool) -> "Reading":
    """Read labels and say what was found."""
    from partlabel.base import terminal
    from partlabel.labels import formats
    from partlabel.output import display

    reading = formats.read(path, format, unlisted)
    uncertain = sum(reading.notes.uncertain.values())
    if uncertain:
        message = f"{path}: {uncertain:,} labels marked uncertain are read as unknown"
        warnings.warn(message, PartlabelWarning, stacklevel=2)
    if not quiet:
        decided = "" if format else ", decided by content"
        name = f"{path} ({reading.notes.format}{decided})"
        terminal.say(f"read {name}: {display.describe(reading.table)}")
        if reading.notes.repeated:
            terminal.say(f"  note: {len(reading.notes.repeated):,} images described more than once")
    return reading


def _check_target(out: Path, to: str | None, inputs: list[Path]) -> None:
    """Refuse a wrong target before anything is read, and one that is an input."""
    from partlabel.base.errors import FileError
    from partlabel.labels.formats import target_format

    target_format(out, to)
    if any(out.resolve() == path.resolve() for path in inputs):
        raise FileError(out, "is an input; write to another file")


def _wrote(path: Path, table: Any, lost: list[str], as_json: bool, **more: int) -> None:
    from partlabel.base.terminal import say
    from partlabel.output.display import describe

    images, classes = table.shape
    if as_json:
        result = {"path": str(path), "images": images, "classes": classes, "known": table.known}
        typer.echo(json.dumps(result | {"lost": lost} | more))
    elif lost:
        say(f"wrote {path}: what it can hold of {describe(table)}")
    else:
        say(f"wrote {path}: {describe(table)}")


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (inspect, convert, merge, simulate, scenes):
        app.command()(command)
