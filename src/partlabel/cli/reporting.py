"""Commands that write about runs: ``report`` and ``bench``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from partlabel.base.errors import count
from partlabel.cli.reading import reads_labels
from partlabel.cli.run_options import (
    IMAGES,
    Cache,
    Device,
    FeatureIds,
    Features,
    Images,
    MinPrecision,
    RunFolder,
)

if TYPE_CHECKING:
    from partlabel.labels.formats import ReadOptions


def report(
    run: RunFolder,
    truth: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="A label file with more of the true labels, to show how unknown labels were "
            "predicted."
        ),
    ] = None,
    baseline: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="RUN2", help="Another run on the same labels to compare with."),
    ] = None,
    boxes: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="A file of boxes (image,class,left,top,right,bottom), to show whether class maps "
            "are highest on objects."
        ),
    ] = None,
    min_precision: MinPrecision = 0.95,
    landscape: Annotated[
        bool,
        typer.Option(
            "--landscape",
            help="Also draw the loss around the trained weights. This takes minutes if the "
            "backbone was trained.",
        ),
    ] = False,
    images: Images = None,
    features: Features = None,
    feature_ids: FeatureIds = None,
    cache: Cache = None,
    device: Device = None,
    *,
    reading: "ReadOptions",
) -> None:
    """Write RUN/report.html: curves, classes, scores and sample images in one file.

    Example: partlabel report run --truth full.csv --baseline run-an --landscape
    """
    from partlabel.base.terminal import say
    from partlabel.output import products

    path = products.report(
        run,
        truth=truth,
        baseline=baseline,
        boxes=boxes,
        min_precision=min_precision,
        landscape=landscape,
        images=images,
        features=features,
        feature_ids=feature_ids,
        cache=cache,
        device=device,
        reading=reading,
    )
    say(f"wrote {path}")


def bench(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and results.")],
    spec: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(
            metavar="[SPEC.yaml]",
            help="The file that says what to compare. Without it, methods that suit the labels "
            "are compared on --labels.",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Number of trainings at a time; they share the cores.", min=1)
    ] = 1,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue in a folder with results; finished trainings are kept."
        ),
    ] = False,
    labels: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="A label file, instead of the spec's. All labels must be known, unless the spec "
            "hides none."
        ),
    ] = None,
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help=f"{IMAGES} (default: those of the spec)"),
    ] = None,
    features: Features = None,
    feature_ids: FeatureIds = None,
    cache: Cache = None,
    *,
    reading: "ReadOptions",
) -> None:
    """Compare methods on the same labels, with the same tuning on validation labels.

    Without a spec, no labels are hidden, and images are cut into five parts to test on in turn,
    unless they have the splits train and test.

    Writes results.csv (one line per training), table.md and table.tex (mean and standard deviation
    over seeds), epochs.svg and, with several proportions, curves.svg and gains.svg.

    Example: partlabel bench --labels labels.csv --images photos/ -o compared
    """
    from partlabel.base.errors import JobError
    from partlabel.base.terminal import console, say
    from partlabel.output import products
    from partlabel.output.bench.sheets import on_terminal

    benchmark = products.bench(
        spec,
        out,
        jobs=jobs,
        resume=resume,
        labels=labels,
        images=images,
        features=features,
        feature_ids=feature_ids,
        cache=cache,
        reading=reading,
    )
    for sheet in benchmark.tables.sheets:
        console().print(on_terminal(sheet))
    for note in benchmark.tables.notes:
        say(f"* {note}")
    trainings = len(benchmark.results)
    failed = sum("error" in result for result in benchmark.results)
    if failed:
        raise JobError(
            f"{failed} of {count(trainings, 'training')} failed; the reasons are below the tables"
        )


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (report, bench):
        app.command()(reads_labels(command))
