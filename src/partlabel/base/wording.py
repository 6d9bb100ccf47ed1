"""Messages that name options also say, to callers in Python, which keyword arguments these are.

Messages are written with options, such as ``--weight-decay``. A command prints them as they are. In
Python, errors, warnings and notes end with the keyword arguments of ``partlabel.train`` and the
other functions. Options of whole commands, such as ``partlabel train --resume``, and of torchrun
are left out.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

_in_command = False

_FLAGS = {  # options without a value
    *("cache-pixels", "compile", "decay-all", "despite-shift", "drop-empty", "estimates"),
    *("excel-safe", "fixed-statistics", "landscape", "only-labelled", "overwrite"),
    *("own-thresholds", "quiet", "reserved", "resume", "single", "split-duplicates", "strict"),
    "tensorboard",
}
_ARGUMENTS = {
    "for": "goal",
    "frozen": 'frozen="all"',
    "head-set": "head_options",
    "no-symlinks": "the environment variable PARTLABEL_NO_SYMLINKS=1",
    "set": "options",
    "teacher": "teachers",
    "unfreeze": "frozen",
    "unfreeze all": 'frozen="nothing"',
    "unfreeze last": 'frozen="lower"',
}
_VALUES = "absent|all|auto|best|cross|exact|last|lbfgs|linear|onecycle|plateau|sgd|unknown"
_OPTION = re.compile(
    rf"(?:partlabel [a-z]+|torchrun) [^`\n]*|(?<![\w-])--(?P<name>[a-z]+(?:-[a-z]+)*)"
    rf"(?: (?P<value>{_VALUES}|(?P<number>\d+(?:\.\d+)?))(?![\w-])| (?P<key>\w+)(?==))?"
)


_HINT = " (in Python: "


@contextmanager
def words_of_commands() -> Iterator[None]:
    """Leave messages as they are, within the block."""
    global _in_command
    before, _in_command = _in_command, True
    try:
        yield
    finally:
        _in_command = before


def worded(text: str) -> str:
    """A message for the caller, who may be in Python.

    >>> worded("--momentum has no effect without --optimizer sgd")
    '--momentum has no effect without --optimizer sgd (in Python: momentum, optimizer="sgd")'
    >>> worded("--set alpha=x: must be a number; try `partlabel train --frozen`")
    '--set alpha=x: must be a number; try `partlabel train --frozen` (in Python: options["alpha"])'
    >>> worded("train with --reserve 0.2 for --guarantee exact.")
    'train with --reserve 0.2 for --guarantee exact. (in Python: reserve=0.2, guarantee="exact")'
    >>> worded("`torchrun --max-restarts 3` starts all processes again")
    '`torchrun --max-restarts 3` starts all processes again'
    >>> with words_of_commands():
    ...     worded("go on with the same call and --resume")
    'go on with the same call and --resume'
    """
    if _in_command or _HINT in text:
        return text
    options = [match for match in _OPTION.finditer(text) if match["name"] is not None]
    arguments = dict.fromkeys(_as_argument(match) for match in options)
    return f"{text}{_HINT}{', '.join(arguments)})" if arguments else text


def _as_argument(match: re.Match[str]) -> str:
    name, value, key, number = match["name"], match["value"], match["key"], match["number"]
    if f"{name} {value}" in _ARGUMENTS:
        return _ARGUMENTS[f"{name} {value}"]
    argument = _ARGUMENTS.get(name, name.replace("-", "_"))
    if key is not None and name in ("set", "head-set"):
        return f'{argument}["{key}"]'
    if value is not None and "=" not in argument:
        return f"{argument}={number or json.dumps(value)}"
    return f"{argument}=True" if name in _FLAGS else argument
