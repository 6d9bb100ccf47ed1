"""How ``torchrun`` started this process: its number, and how many there are."""

import os

from partlabel.base.errors import InputError

TIMEOUT = "PARTLABEL_TIMEOUT"
"""The environment variable with the seconds after which a process that is silent is given up."""

_DEFAULT_TIMEOUT = 600.0


def is_launched() -> bool:
    """Whether ``torchrun`` started this process, as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and number_in("WORLD_SIZE", 1) > 1


def launched_rank() -> int:
    """The number of this process, from 0 on, as ``torchrun`` counts them."""
    return number_in("RANK", 0) if is_launched() else 0


def is_restarted() -> bool:
    """Whether ``torchrun`` has started this process again, after it or another one failed."""
    return is_launched() and number_in("TORCHELASTIC_RESTART_COUNT", 0) > 0


def job() -> str:
    """The name of the job, the same after a restart; empty without ``torchrun``."""
    return os.environ.get("TORCHELASTIC_RUN_ID", "") if is_launched() else ""


def on_this_computer() -> int:
    """The number of processes on this computer, which share its cores."""
    return max(1, number_in("LOCAL_WORLD_SIZE", 1)) if is_launched() else 1


def place_on_this_computer() -> int:
    """The number of this process among those on this computer, from 0 on."""
    return number_in("LOCAL_RANK", 0) if is_launched() else 0


def timeout() -> float:
    """Seconds to wait for another process."""
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text) if text else _DEFAULT_TIMEOUT
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise InputError(f"{TIMEOUT} is '{text}'; give a number of seconds, such as 600")
    return seconds


def number_in(name: str, default: int) -> int:
    """The number in an environment variable."""
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default
