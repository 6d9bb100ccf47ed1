"""Ctrl-C as a request to stop soon, instead of an exception at any point in the code."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _InterruptHandler:
    """Records the first Ctrl-C; the second raises KeyboardInterrupt."""

    pressed = False

    def __call__(self, number: int, frame: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; a second Ctrl-C stops at once.

    Blocks may be nested. The inner one handles Ctrl-C while it runs, and the outer one then reports
    it too.
    """
    handler = _InterruptHandler()
    try:
        previous = signal.signal(signal.SIGINT, handler)
    except ValueError:  # signals arrive in the main thread only, and this is another one
        yield lambda: False
        return
    try:
        yield lambda: handler.pressed
    finally:
        signal.signal(signal.SIGINT, previous)
        if handler.pressed and isinstance(previous, _InterruptHandler):
            previous.pressed = True
