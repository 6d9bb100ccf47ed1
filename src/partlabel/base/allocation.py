"""How this process asks the system for memory."""

import ctypes
import sys
from typing import Any

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Let a training use the memory of one step again in the next.

    glibc gives large blocks back to the system when they are freed, and the system clears every
    page that it hands out: for the activations of a network that takes a good part of a step.
    The most memory in use stays about the same, but little of it is given back on its own.

    Returns:
        Whether this is a system where that can be said.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is None:
        return False
    wishes = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 2**26))
    return bool(min(mallopt(what, value) for what, value in wishes))


def give_back_memory() -> None:
    """Give what was freed back to the system, after a training for example."""
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_glibc(name: str) -> Any:
    """A function of the C library; None if it is another one, such as musl, or another system."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
