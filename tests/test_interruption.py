"""Signals and locks: what is ignored stays ignored, and forked processes hold no lock."""

import os
import signal
import time
from pathlib import Path

import pytest

from partlabel.base.errors import FileError
from partlabel.base.interruption import interruptible
from partlabel.base.locks import locked


def test_a_signal_is_noted() -> None:
    with interruptible() as received_signal:
        os.kill(os.getpid(), signal.SIGHUP)
        assert received_signal() == signal.SIGHUP


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As under ``nohup``, when the terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as received_signal:
            os.kill(os.getpid(), signal.SIGHUP)
            assert received_signal() == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_forked_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    """Processes that decode images may live a little longer than the training."""
    has_forked, tell = os.pipe()
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os.write(tell, b"1")
            time.sleep(60)
            os._exit(0)
        os.read(has_forked, 1)
        with pytest.raises(FileError, match=f"in use by process {os.getpid()}"), locked(tmp_path):
            pass
    try:
        with locked(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(has_forked)
        os.close(tell)
