"""The command around caches: ``cache``."""

from pathlib import Path
from typing import Annotated, Optional

import typer


def cache(
    folder: Annotated[
        Optional[Path],  # noqa: UP045  # typer reads the annotation
        typer.Option(
            "--cache",
            help="Folder of cached features. (default: PARTLABEL_CACHE, or the user's cache "
            "folder)",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Compare every record with its checksum and remove damaged ones, which are "
            "computed again when they are needed.",
        ),
    ] = False,
) -> None:
    """List cached features and images with their size, or check them."""
    from partlabel.base.errors import count
    from partlabel.base.terminal import console, progress, say
    from partlabel.models.features import default_cache, list_stores, open_store
    from partlabel.output.display import grid

    root = folder or default_cache()
    stores = list_stores(root)
    rows, total, damaged = [], 0, 0
    with progress("checking", show=verify) as bar:
        for number, path in enumerate(stores, start=1):
            store = open_store(path)
            removed = store.remove_damaged() if verify else 0
            size = len(store.index) * store.size
            row = [path.name, f"{len(store.index):,}", f"{size / 1e6:,.1f}"]
            rows.append([*row, *([f"{removed:,}"] if verify else [])])
            total, damaged = total + size, damaged + removed
            bar(number, len(stores))
    titles = [("store", False), ("records", True), ("MB", True)]
    if rows:
        console().print(grid([*titles, *([("damaged", True)] if verify else [])], rows))
    say(f"{root}: {count(len(stores), 'store')}, {total / 1e6:,.1f} MB")
    if verify:
        say(f"{count(damaged, 'damaged record')} removed" if damaged else "nothing is damaged")


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(cache)
