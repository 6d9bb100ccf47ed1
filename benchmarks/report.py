"""Measure time and memory, and print the results."""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def timed(work: Callable[[], T], repeat: int = 1) -> tuple[float, T]:
    """The shortest time of several runs in seconds, and the last result."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def processor_time(work: Callable[[], object], repeat: int = 1) -> float:
    """The shortest processor time of several runs in seconds, over all threads.

    Unlike the time on the clock, it hardly depends on what else the machine does.
    """
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def resident() -> float:
    """Resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak() -> float:
    """Peak of the resident memory in MB, since the start or the last :func:`forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def forget_peak() -> float:
    """Reset the peak to the present resident memory, and return that in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def print_result(name: str, value: str, target: str, reached: bool) -> None:
    """Print one line: whether the target is reached, the name, the value and the target."""
    print(f"{'ok  ' if reached else 'MISS'}  {name:<58} {value:>18}   target {target}", flush=True)


def machine() -> str:
    """The date and the environment of a measurement."""
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
