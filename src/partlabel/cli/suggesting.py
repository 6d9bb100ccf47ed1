"""The command ``suggest``, which asks for labels."""

from pathlib import Path
from typing import Annotated, Any, Optional, cast

import typer

from partlabel.cli.labels import ExcelSafe
from partlabel.cli.run_options import (
    Cache,
    Device,
    FeatureIds,
    Features,
    Images,
    RunFolder,
)


def suggest(
    run: RunFolder,
    budget: Annotated[
        int,
        typer.Option(
            help="Number of questions: cells, or images; with --per best, as much work as so many "
            "cells."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The file to write: .csv, or .json for label-studio."),
    ],
    per: Annotated[
        str,
        typer.Option(
            help="cell (an image and a class), image (all its unknown labels), or best: whichever "
            "tells more per second of work."
        ),
    ] = "cell",
    goal: Annotated[
        str,
        typer.Option(
            "--for",
            help="map (a better classifier), promises (more present labels that can be filled in "
            "with a guarantee) or errors (known labels that may be wrong).",
        ),
    ] = "map",
    strategy: Annotated[
        str,
        typer.Option(
            help="How cells are chosen: information, random, entropy, margin or "
            "most-likely-present."
        ),
    ] = "information",
    cost: Annotated[
        Optional[float],  # noqa: UP045  # typer reads the annotation
        typer.Option(
            help="Seconds of work per cell: for the estimate of the time, and with --per best for "
            "the choice. (default: 2)"
        ),
    ] = None,
    image_cost: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Seconds of work per image, with all its unknown labels: for the estimate of the "
            "time, and with --per best for the choice. (default: 10)"
        ),
    ] = None,
    images: Images = None,
    features: Features = None,
    feature_ids: FeatureIds = None,
    to: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--to", help="csv or label-studio. (default: by the suffix of the file)"),
    ] = None,
    excel_safe: ExcelSafe = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it exists.")
    ] = False,
    cache: Cache = None,
    device: Device = None,
) -> None:
    """Choose the labels that people should be asked for next.

    Writes one line per question, the most useful first: image, class, an empty value to fill in (1
    or 0), and why it is asked. `partlabel merge LABELS FILE -o NEW --corrections` adds the answers.

    Example: partlabel suggest run --budget 500 -o questions.csv
    """
    from partlabel.base.errors import InputError, one_of
    from partlabel.base.terminal import say
    from partlabel.judging import labelling
    from partlabel.judging.suggestion.questions import FORMATS

    if to is not None:
        one_of("format of questions", to, FORMATS)
    if out.is_file() and not overwrite:
        raise InputError(f"{out}: already exists; choose another name, or use --overwrite")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out}: its folder does not exist")
    choices: Any = {"per": per, "goal": goal}  # checked by labelling.suggest
    suggestions = labelling.suggest(
        run,
        budget,
        strategy=strategy,
        cost=cost,
        image_cost=image_cost,
        images=images,
        features=features,
        feature_ids=feature_ids,
        cache=cache,
        device=device,
        **choices,
    )
    suggestions.save(out, to, excel_safe=excel_safe)
    say(f"wrote {out}: {suggestions.headline()}")


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command()(cast("Any", suggest))
