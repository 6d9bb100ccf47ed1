"""How this process asks the system for memory."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Let a training use the memory of one step again in the next.

    glibc gives large blocks back to the system when they are freed, and the system clears every
    page that it hands out: for the activations of a network that is a third of the time of a step.
    The most memory in use stays about the same, but little of it is given back before the end.

    Returns:
        Whether this is a system where that can be said.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # a C library without it, such as musl
        return False
    wishes = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 2**26))
    return bool(min(mallopt(what, value) for what, value in wishes))
