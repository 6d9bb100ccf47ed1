"""The command around caches: ``cache``."""

from pathlib import Path
from typing import Annotated, Optional

import typer

from partlabel.base.errors import InputError, count


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
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Remove stores that no process uses: all, or those that --limit and --days say.",
        ),
    ] = False,
    limit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="With --prune: remove what was not used for longest, until this size is left, "
            "such as 20GB."
        ),
    ] = None,
    days: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="With --prune: remove what was not used for this many days.", min=0),
    ] = None,
) -> None:
    """List cached features and images with their size; check or remove them.

    PARTLABEL_CACHE_LIMIT, such as 20GB, sets a limit that is kept: what was not used for longest is
    removed before new features are stored.
    """
    from partlabel.base.terminal import console, say
    from partlabel.models import features
    from partlabel.output.display import grid

    if not prune and (limit is not None or days is not None):
        raise InputError("--limit and --days have no effect without --prune")
    root = folder or features.default_cache()
    if prune:
        most = None if limit is None else features.read_size(limit, "--limit")
        everything = 0.0 if limit is None and days is None else days
        removed = features.prune(root, limit=most, days=everything)
        freed = sum(store.size for store in removed) / 1e6
        say(f"{count(len(removed), 'store')} removed, {freed:,.1f} MB freed")
    damaged = _remove_damaged(root) if verify else {}
    stores = features.usage(root)
    rows = []
    for store in reversed(stores):
        name = store.folder.name
        records = len(features.open_store(store.folder, use=False).index)
        row = [name, f"{records:,}", f"{store.size / 1e6:,.1f}", f"{store.days_unused:.1f}"]
        rows.append([*row, *([f"{damaged.get(name, 0):,}"] if verify else [])])
    titles = [("store", False), ("records", True), ("MB", True), ("days unused", True)]
    if rows:
        console().print(grid([*titles, *([("damaged", True)] if verify else [])], rows))
    largest = features.cache_limit()
    about = "" if largest is None else f", limit {largest / 1e6:,.1f} MB"
    total = sum(store.size for store in stores) / 1e6
    say(f"{root}: {count(len(stores), 'store')}, {total:,.1f} MB{about}")
    if verify:
        number = sum(damaged.values())
        say(f"{count(number, 'damaged record')} removed" if number else "nothing is damaged")


def _remove_damaged(root: Path) -> dict[str, int]:
    """The number of damaged records that were removed from each store."""
    from partlabel.base.terminal import progress
    from partlabel.models.features import list_stores, open_store

    damaged, stores = {}, list_stores(root)
    with progress("checking") as bar:
        for number, path in enumerate(stores, start=1):
            damaged[path.name] = open_store(path, use=False).remove_damaged()
            bar(number, len(stores))
    return damaged


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(cache)
