"""Short messages between processes that also arrive while one of them does not answer.

They go through the key-value store that ``torchrun`` keeps outside of the processes. A process that
fails says why, and the first one can then show it.
"""

import atexit
import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import Any

from partlabel.base.process_meeting import connect

_PATIENCE = 3.0  # seconds to wait for the words of processes that failed at the same time
_END = 20.0  # seconds that a process waits for the first one to show its error
_EXIT = 5.0  # seconds that a process takes to end
_POLL = 0.1
_STORE_TIMEOUT = 5.0  # seconds after which a store counts as out of reach
_BEAT = 1.0  # seconds between two heartbeats


@dataclass
class Words:
    """What the processes tell each other.

    Args:
        store: the key-value store of torchrun.
        rank: number of this process.
        size: number of processes.
        name: of the computer.
        names: of the computers of all processes.
    """

    store: Any
    rank: int
    size: int
    name: str
    names: list[str] = field(default_factory=list)
    meetings: int = 0
    queues: int = 0
    is_lost: bool = False  # whether the store does not answer any more
    ended: Event = field(default_factory=Event)

    @classmethod
    def open(cls, meeting: str, rank: int, size: int) -> "Words":
        """Connect to the store.

        Args:
            meeting: the name that the processes agreed on.
            rank: number of this process.
            size: number of processes.
        """
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]

        store = PrefixStore(f"partlabel-{meeting}", connect(_STORE_TIMEOUT))
        words = cls(store, rank, size, socket.gethostname())
        heart = Thread(target=words._beat, daemon=True)
        heart.start()

        def stop() -> None:
            words.ended.set()
            heart.join(_STORE_TIMEOUT)

        # a thread that asks the store while Python ends would abort the whole process
        atexit.register(stop)
        return words

    def say(self, code: int, message: str) -> None:
        """Say why this process fails."""
        self._set(f"error/{self.rank}", json.dumps([code, message]))
        self._set("error", "1")

    def of_others(
        self, *, timed_out: bool, patience: float = _PATIENCE
    ) -> dict[int, tuple[int, str]]:
        """Exit code and message of each other process that failed.

        Args:
            timed_out: whether this process gave up waiting, which it then says too.
            patience: seconds to wait for a first word; others may fail a moment later.
        """
        if timed_out:
            self._set(f"late/{self.rank}", "1")
        until, errors = time.monotonic() + patience, dict[int, tuple[int, str]]()
        while time.monotonic() < until:
            found = self._errors()
            if found and not errors:
                until = min(until, time.monotonic() + 1.0)
            errors = found
            if len(errors) == self.size - 1:
                break
            time.sleep(_POLL)
        return errors

    def _errors(self) -> dict[int, tuple[int, str]]:
        found: dict[int, tuple[int, str]] = {}
        if self._get("error") is None:
            return found
        for who in range(self.size):
            text = self._get(f"error/{who}") if who != self.rank else None
            if text is not None:
                code, message = json.loads(text)
                found[who] = (int(code), str(message))
        return found

    def silent(self) -> list[int]:
        """The processes that neither failed nor gave up waiting."""
        return [
            who for who in range(self.size) if who != self.rank and self._get(f"late/{who}") is None
        ] or [who for who in range(self.size) if who != self.rank]

    def end(self) -> None:
        """Say that the first process ends."""
        self._set("end", "1")

    def wait_for_end(self) -> None:
        """Wait until the first process has ended, for some seconds."""
        if self.is_lost:
            return
        until = time.monotonic() + _END
        while time.monotonic() < until and self._get("end") is None:
            time.sleep(_POLL)
        time.sleep(_EXIT)  # torchrun ends this process as soon as the first one has ended

    def wait_for_all(self, patience: float) -> bool:
        """Wait until all processes call this; False if one fails.

        Args:
            patience: seconds after which a process without a heartbeat is given up. One that is
                busy has a heartbeat, and is waited for however long it takes.

        Raises:
            TimeoutError: a process, or the store, does not answer.
        """
        self.meetings += 1
        key = f"meeting/{self.meetings}"
        beats, heard_at, checked_at = dict[int, int](), dict[int, float](), time.monotonic()
        came = self._ask(partial(self.store.add, key, 1))
        while came is not None and came < self.size:
            if self._errors():
                return False
            now = time.monotonic()
            for who in range(self.size) if now - checked_at > 1 else ():
                checked_at = now
                beat = self._ask(partial(self.store.add, f"beat/{who}", 0)) or 0
                if beats.get(who) != beat:
                    beats[who], heard_at[who] = beat, now
                if now - heard_at[who] > patience:
                    raise TimeoutError(f"timed out: process {who} has no heartbeat")
            time.sleep(_POLL)
            came = self._ask(partial(self.store.add, key, 0))
        if came is None:
            raise TimeoutError("timed out: the store does not answer")
        return True

    def _beat(self) -> None:
        """Show every second that this process is alive."""
        while not self.is_lost:
            with suppress(RuntimeError):
                self.store.add(f"beat/{self.rank}", 1)
            if self.ended.wait(_BEAT):
                return

    def new_queue(self) -> int:
        """A queue that no process has used yet; all processes must ask for it."""
        self.queues += 1
        return self.queues

    def next_number(self, queue: int) -> int:
        """The next number of a queue, from 0 on; no two processes get the same."""
        return int(self.store.add(f"queue/{queue}", 1)) - 1

    def _set(self, key: str, value: str) -> None:
        self._ask(lambda: self.store.set(key, value))

    def _get(self, key: str) -> str | None:
        def get() -> str | None:
            return bytes(self.store.get(key)).decode() if self.store.check([key]) else None

        answer: str | None = self._ask(get)
        return answer

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The answer of the store; None if it does not answer.

        A store that a cut network hides would never answer, so a thread asks it.
        """
        answers: list[Any] = []

        def ask() -> None:
            with suppress(RuntimeError):
                answers.append(question())

        if self.is_lost:
            return None
        thread = Thread(target=ask, daemon=True)
        thread.start()
        thread.join(_STORE_TIMEOUT)
        self.is_lost = thread.is_alive()
        return answers[0] if answers else None
