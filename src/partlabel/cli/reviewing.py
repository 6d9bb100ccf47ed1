"""The command ``review``: a page on which people check labels."""

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, cast

import typer

from partlabel.base.errors import InputError, count
from partlabel.cli.labels import ExcelSafe, check_excel_safe
from partlabel.cli.reading import reads_labels
from partlabel.cli.run_options import Cache, Device, Images, MinPrecision, RunFolder

if TYPE_CHECKING:
    from partlabel.labels.formats import ReadOptions

EXPORTING = "Export"


def review(
    run: RunFolder,
    labels: Annotated[
        Optional[Path],  # noqa: UP045  # typer reads the annotation
        typer.Option(help="The label file to review. (default: the labels of the run)"),
    ] = None,
    port: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=0, max=65535, help="Port of the page. (default: 8765, or another if it is in use)"
        ),
    ] = None,
    reviewer: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Your name in the journal. (default: the name of the user)"),
    ] = None,
    images: Images = None,
    min_precision: MinPrecision = 0.95,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on. All but the default can be reached by others."),
    ] = "127.0.0.1",
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    learn: Annotated[
        bool, typer.Option("--learn/--no-learn", help="Learn from verdicts while you work.")
    ] = True,
    export: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            rich_help_panel=EXPORTING,
            help="Write the labels with all verdicts to this file, and verdicts.csv beside it. No "
            "page is started.",
        ),
    ] = None,
    to: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--to", rich_help_panel=EXPORTING, help="Format to write. (default: by the file name)"
        ),
    ] = None,
    filled: Annotated[
        bool,
        typer.Option(
            "--filled",
            rich_help_panel=EXPORTING,
            help="Also write labels that a model fills in and random verdicts guarantee.",
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", rich_help_panel=EXPORTING, help="Replace the files if they exist."
        ),
    ] = False,
    excel_safe: ExcelSafe = False,
    cache: Cache = None,
    device: Device = None,
    *,
    reading: "ReadOptions",
) -> None:
    """Check labels on a page in the browser, on this computer only.

    The page shows labels in doubt, suspects, and labels that were filled in. It learns from your
    verdicts while you work. Verdicts are kept at once, in RUN.review/journal.sqlite; the run itself
    is never changed. Random labels that are mixed in test what the model fills in.

    Examples: partlabel review run

    partlabel review run --export reviewed.csv --to cells
    """
    from partlabel.base.terminal import say
    from partlabel.labels.formats import ReadOptions, read_with
    from partlabel.output.review.serve import export_review
    from partlabel.output.review.serve import review as serve
    from partlabel.output.review.session import ReviewOptions

    if not 0 < min_precision < 1:
        raise InputError(f"--min-precision {min_precision:g}: must lie between 0 and 1")
    if labels is None and reading != ReadOptions():
        raise InputError("options for reading labels have no effect without --labels")
    if export is None and (to is not None or filled or overwrite or excel_safe):
        raise InputError(
            "--to, --filled, --overwrite and --excel-safe have no effect without --export"
        )
    table = None if labels is None else read_with(labels, reading).table
    options = ReviewOptions(run, table, images, min_precision, cache, device, learn)
    if export is None:
        name = _user() if reviewer is None else reviewer.strip()
        if not name.isprintable() or not 0 < len(name) <= 80:
            raise InputError("--reviewer: give a name of 1 to 80 printable characters")
        code = serve(options, name, host=host, port=port, browser=browser)
        if code:
            raise typer.Exit(code)
        return
    check_excel_safe(export, to or "cells", excel_safe)
    for path in (export, export.with_name("verdicts.csv")):
        if path.is_file() and not overwrite:
            raise InputError(f"{path}: already exists; choose another name, or use --overwrite")
    paths = export_review(options, export, to, filled=filled, excel_safe=excel_safe)
    say(f"wrote {count(len(paths), 'file')}: {', '.join(map(str, paths))}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "reviewer"


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(cast("Any", reads_labels(review)))
