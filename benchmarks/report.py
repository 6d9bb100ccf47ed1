"""How a measurement is taken and told."""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def timed(work: Callable[[], T], repeat: int = 1) -> tuple[float, T]:
    """The best time of some runs in seconds, and the last result."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def resident() -> float:
    """Memory this process holds now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak() -> float:
    """The most memory this process has held, in MB, since it began or last forgot."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def forget_peak() -> float:
    """Begin a new peak, at the memory that is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def tell(what: str, value: str, target: str, good: bool) -> None:
    """One line for one figure."""
    print(f"{'ok  ' if good else 'MISS'}  {what:<58} {value:>18}   target {target}", flush=True)


def machine() -> str:
    """What this ran on."""
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
