"""The command ``export``."""

from pathlib import Path
from typing import Annotated

import typer

from partlabel.cli.run_options import (
    Cache,
    Device,
    FeatureIds,
    Features,
    Images,
    RunFolder,
)

To = Annotated[
    str,
    typer.Option(
        "--to",
        help="onnx, torch-export or hub: the model, to deploy it. label-studio: tasks with "
        "predictions. hf: images and completed labels, for load_dataset. cleanlab: labels and "
        "held-out probabilities. Any label format, such as csv or cells: completed labels, as "
        "`partlabel complete` writes them.",
    ),
]
MinPrecision = Annotated[
    float,
    typer.Option(
        help="Share of a model's decisions, or of the filled-in labels, that must be right."
    ),
]
Untested = Annotated[
    bool,
    typer.Option(
        "--untested",
        help="Do not test the decisions on reserved labels, which needs the images of the run. "
        "They then have no guarantee.",
    ),
]
Resized = Annotated[
    bool,
    typer.Option(
        "--resized",
        help="For onnx and torch-export: images are given in the size of the run. Use it for "
        "runtimes that have no antialiased resize.",
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace files that exist. A folder must be new or empty."),
]


def export(
    run: RunFolder,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write; for hub and hf a new folder.")
    ],
    to: To,
    min_precision: MinPrecision = 0.95,
    untested: Untested = False,
    resized: Resized = False,
    overwrite: Overwrite = False,
    images: Images = None,
    features: Features = None,
    feature_ids: FeatureIds = None,
    cache: Cache = None,
    device: Device = None,
) -> None:
    """Write a run in the form of another tool: a model to deploy, tasks to label, a dataset.

    A model takes pixels and gives probabilities, labels, and decisions: 1 present, -1 absent, 0
    don't know. Decisions have a guarantee if labels that the run reserved have tested this model.

    Examples: partlabel export run model.onnx --to onnx

    partlabel export run tasks.json --to label-studio
    """
    from partlabel.base.terminal import say
    from partlabel.output import products

    done = products.export(
        run,
        out,
        to,
        min_precision=min_precision,
        tested=not untested,
        resized=resized,
        overwrite=overwrite,
        images=images,
        features=features,
        feature_ids=feature_ids,
        cache=cache,
        device=device,
    )
    say(f"wrote {', '.join(str(path) for path in done.paths)}")
    for note in done.notes:
        say(f"  {note}")


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(export)
