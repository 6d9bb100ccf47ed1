"""A folder that one process at a time may write to.

Locks are those of the operating system (``flock``): they end with the process, however it ends.
Processes that it forks do not keep them.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partlabel.base.errors import FileError

LOCK = ".lock"

_held: set[int] = set()  # file descriptors, which a forked process would hold on to


def _let_go() -> None:
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder; an error names the process that holds it already."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise FileError(folder, f"cannot write here ({error.strerror})") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
            raise FileError(folder, f"is in use by {holder}; wait for it, or stop it") from None
        except OSError as error:  # some network file systems have no locks
            raise FileError(folder, f"cannot be locked ({error.strerror})") from error
        _held.add(handle)
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        _held.discard(handle)
        os.close(handle)  # which also unlocks
