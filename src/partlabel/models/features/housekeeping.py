"""The size of a cache: what its stores take, a limit, and the removal of stores."""

import fcntl
import os
import re
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from partlabel.base.errors import InputError, JobError

LIMIT = "PARTLABEL_CACHE_LIMIT"
"""The environment variable with the largest size of a cache, such as 20GB."""

IN_USE = "in_use"
"""The file in a store that processes hold while they use it."""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True)
class StoreUsage:
    """What a store takes.

    Args:
        folder: of the store.
        size: bytes on disk.
        last_used: seconds since 1970.
    """

    folder: Path
    size: int
    last_used: float

    @property
    def days_unused(self) -> float:
        """Days since the last use."""
        return max(time.time() - self.last_used, 0) / 86400


def list_stores(cache: Path) -> list[Path]:
    """The folders of the stores in a cache."""
    return sorted(path.parent for path in cache.glob("*/store.json"))


def usage(cache: Path) -> list[StoreUsage]:
    """What each store of a cache takes, the one that was not used for longest first."""
    stores = [_usage(folder) for folder in list_stores(cache)]
    return sorted((store for store in stores if store), key=lambda store: store.last_used)


def _usage(folder: Path) -> StoreUsage | None:
    """What a store takes; None if another process has removed it."""
    try:
        mark = folder / IN_USE
        last_used = (mark if mark.exists() else folder / "store.json").stat().st_mtime
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    except FileNotFoundError:
        return None
    return StoreUsage(folder, size, last_used)


def read_size(text: str, name: str) -> int:
    """The number of bytes of a size.

    >>> read_size("1.5GB", "--limit"), read_size("200 M", "--limit")
    (1500000000, 200000000)
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)B?", text.strip().upper())
    if match is None:
        raise InputError(f"{name} is '{text}'; give a size, such as 500MB or 20GB")
    return int(float(match[1]) * _UNITS[match[2]])


def cache_limit() -> int | None:
    """The largest size of a cache in bytes; None if there is no limit."""
    text = os.environ.get(LIMIT, "")
    return read_size(text, LIMIT) if text else None


def make_room(store: Path, size: int) -> None:
    """Remove other stores of a cache until one can grow without exceeding the limit.

    The stores that were not used for longest are removed first. Those in use are kept.

    Args:
        store: the folder of the store.
        size: bytes by which it is to grow.
    """
    limit = cache_limit()
    if limit is None:
        return
    prune(store.parent, limit=max(limit - size, 0), keep=store)
    total = sum(each.size for each in usage(store.parent))
    if total + size > limit:
        raise JobError(
            f"{store}: needs {size / 1e9:.2f} GB more, but the cache has {total / 1e9:.2f} GB in "
            f"use and its limit is {limit / 1e9:.2f} GB; set {LIMIT} to more"
        )


def prune(
    cache: Path,
    *,
    limit: int | None = None,
    days: float | None = None,
    keep: Path | None = None,
) -> list[StoreUsage]:
    """Remove stores that no process uses.

    Args:
        cache: folder that holds all stores.
        limit: remove until the cache has at most this many bytes; None for no limit.
        days: remove all that were not used for this many days; None for any.
        keep: a store that stays.

    Returns:
        The stores that were removed.
    """
    stores = usage(cache)
    total, removed = sum(store.size for store in stores), []
    for store in stores:
        is_old = days is not None and store.days_unused >= days
        is_too_much = limit is not None and total > limit
        if store.folder != keep and (is_old or is_too_much) and remove(store.folder):
            total -= store.size
            removed.append(store)
    return removed


def remove(folder: Path) -> bool:
    """Remove a store, unless a process uses it; returns whether it was removed."""
    try:
        with (folder / IN_USE).open("ab") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # its name goes first: a process that opens it now creates a new one
            gone = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
            folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
    except BlockingIOError:
        return False
    except FileNotFoundError:  # another process was faster
        return True
    return True
