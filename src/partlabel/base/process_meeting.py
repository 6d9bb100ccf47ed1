"""How the processes of ``torchrun`` find each other, also after some of them were started again.

The key-value store of ``torchrun`` outlives the processes. It still holds the addresses of those
that ended, and new processes that trust these wait for answers that never come. So the processes
first agree on a name for this meeting, under which nothing is stored yet.
"""

import os
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

_POLL = 0.02


def connect(seconds: float, *, hosts: bool = False) -> "Store":
    """The store of torchrun.

    Args:
        seconds: to wait for an answer.
        hosts: whether this process provides the store, if torchrun itself does not. It does so as
            long as what is returned exists.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    hosts = hosts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    patience = timedelta(seconds=seconds)
    return TCPStore(address, port, None, hosts, timeout=patience, wait_for_workers=False)


def agree_on_name(store: "Store", rank: int, size: int, seconds: float) -> str:
    """A name that the processes that are running now agree on, and no earlier ones.

    Each process writes a word nobody has used. The first one puts all words together to a name.
    It is valid once each process has found its own word in it: then no word in it is an old one.

    Args:
        store: what all processes can read and write, with entries of earlier processes.
        rank: number of this process.
        size: number of processes.
        seconds: to wait for the others.

    Raises:
        TimeoutError: not all processes came.
    """
    words = [f"meeting/word/{who}" for who in range(size)]
    confirmed = [f"meeting/confirmed/{who}" for who in range(size)]
    own = secrets.token_hex(8)
    store.set(words[rank], own)

    def lead() -> str | None:
        name = "-".join(_read(store, key) for key in words)
        store.set("meeting/proposed", name)
        store.set(confirmed[0], name)
        if any(_read(store, key) != name for key in confirmed):
            return None
        store.set("meeting/name", name)
        return name

    def follow() -> str | None:
        name = _read(store, "meeting/proposed")
        if name.split("-")[rank : rank + 1] != [own]:
            return None
        store.set(confirmed[rank], name)
        return name if _read(store, "meeting/name") == name else None

    return _repeat(lead if rank == 0 else follow, seconds)


def _repeat(attempt: Callable[[], str | None], seconds: float) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if (name := attempt()) is not None:
            return name
        time.sleep(_POLL)
    raise TimeoutError("timed out: not all processes came")


def _read(store: "Store", key: str) -> str:
    return bytes(store.get(key)).decode() if store.check([key]) else ""
