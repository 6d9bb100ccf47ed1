"""Signals that ask a program to stop, noted so that it can stop at a good moment."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, what schedulers send before they kill, and the end of a terminal session."""


class _Note:
    """Remembers the first signal; a second one stops the program at once."""

    received = 0

    def __call__(self, number: int, frame: Any) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = number


@contextmanager
def interruptible() -> Iterator[Callable[[], int]]:
    """Yield a function that gives the number of the signal that was received, 0 for none.

    Blocks can be nested: the inner block notes the signal and reports it to the outer one. A signal
    that is ignored stays ignored, as with ``nohup``.
    """
    note = _Note()
    try:
        before = {number: signal.signal(number, note) for number in STOPPING if _is_heard(number)}
    except ValueError:  # not in the main thread, where no signals arrive
        yield lambda: 0
        return
    try:
        yield lambda: note.received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for outer in before.values():
            if note.received and isinstance(outer, _Note):
                outer.received = note.received


def _is_heard(number: int) -> bool:
    """Whether Python handles a signal: it is not ignored, and not handled by another library."""
    return signal.getsignal(number) not in (signal.SIG_IGN, None)
