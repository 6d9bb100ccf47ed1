"""Ctrl-C as a wish, not as an exception in the middle of something."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed; a second one stops at once."""
    pressed: list[bool] = []

    def note(number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(True)

    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:  # not in the main thread, where no signals arrive
        yield lambda: False
        return
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
