"""Commands that ``torchrun`` starts in several processes: who does what, and who prints."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from partlabel.base import launch, processes

_SHARED = ("train", "embed", "evaluate", "predict", "complete", "bench")
_LOGS = "PARTLABEL_LOGS"
_KEPT = 100  # logs


def is_shared(arguments: Sequence[str]) -> bool:
    """Whether these arguments name a command whose work is shared out to all processes."""
    named = [argument for argument in arguments if not argument.startswith("-")]
    return bool(named) and named[0] in _SHARED and not {"-h", "--help"} & set(arguments)


def together_or_alone(arguments: Sequence[str]) -> AbstractContextManager[None]:
    """A block that carries out a command: in all processes, or in this one."""
    return processes.together() if is_shared(arguments) else nullcontext()


def log_folder() -> Path:
    """Where processes but the first write their messages."""
    from partlabel.models.features import default_cache

    return Path(os.environ.get(_LOGS) or default_cache() / "logs")


def write_to_log() -> None:
    """Write all that this process prints to a file of its own; old files are removed."""
    folder = log_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.log"))[:-_KEPT]:
        old.unlink(missing_ok=True)
    name = f"{time.strftime('%Y-%m-%d-%H%M%S')}-{launch.job()[:8]}"
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    path = folder / f"{name}-{restarts}-process{launch.launched_rank()}.log"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(handle, stream.fileno())
    os.close(handle)
