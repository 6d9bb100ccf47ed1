"""Ctrl-C as a wish, not as an exception in the middle of something."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Wish:
    """Notes that Ctrl-C was pressed; a second time it stops at once."""

    pressed = False

    def __call__(self, number: int, frame: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed; a second one stops at once.

    Within another such block it takes over, and leaves to the other what it was told.
    """
    wish = _Wish()
    try:
        before = signal.signal(signal.SIGINT, wish)
    except ValueError:  # not in the main thread, where no signals arrive
        yield lambda: False
        return
    try:
        yield lambda: wish.pressed
    finally:
        signal.signal(signal.SIGINT, before)
        if wish.pressed and isinstance(before, _Wish):
            before.pressed = True
