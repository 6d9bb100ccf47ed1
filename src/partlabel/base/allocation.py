"""How this process gets memory from the system and returns it."""

import ctypes
import os
import sys
from typing import Any

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4  # of glibc
_BLOCK, _BLOCKS = 2**26, 2**28  # bytes of one array and of all that :func:`reuse_blocks` keeps


def keep_freed_memory() -> bool:
    """Keep freed memory in the process, so that the next training step can reuse it.

    By default glibc returns large freed blocks to the system, and the system clears every page
    before it hands the page out again. For the activations of a network this takes a large part of
    a step. Peak memory stays about the same, but the process returns little memory until
    :func:`give_back_memory` is called.

    Returns:
        Whether the setting took effect; False on systems without glibc.
    """
    return _set((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 2**26))


def reuse_blocks() -> bool:
    """Keep a little freed memory, for computations on one block of images after the other.

    As :func:`keep_freed_memory`, but at most a quarter of a gigabyte: arrays of all known labels,
    which are larger than a block, are still returned to the system one by one.
    """
    return _set((_M_MMAP_THRESHOLD, _BLOCK), (_M_TRIM_THRESHOLD, _BLOCKS))


def _set(*options: tuple[int, int]) -> bool:
    mallopt = _glibc_function("mallopt")
    # an older glibc refuses a large threshold, and the next setting alone would do harm: so stop
    return mallopt is not None and all(mallopt(option, value) for option, value in options)


def give_back_memory() -> None:
    """Return freed memory to the system, for example after a training."""
    trim = _glibc_function("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc_function(name: str) -> Any:
    """A function of glibc; None with another C library, such as musl, or another system."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None


def file_limit() -> int:
    """Most bytes that a file may need in memory: half of the memory that this computer has.

    Small compressed files can need any amount. Those above the limit are refused, unread.
    """
    return physical_memory() // 2


def physical_memory() -> int:
    """Bytes of memory that this computer has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
