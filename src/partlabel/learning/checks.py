"""Checks of a method's settings and labels, with errors and warnings that name the fix."""

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from partlabel.base.allocation import physical_memory
from partlabel.base.errors import InputError, PartlabelWarning, data_size
from partlabel.labels import LabelTable


def changed_settings(method: type, values: Mapping[str, Any]) -> set[str]:
    """The settings that differ from the defaults of the constructor.

    Call it first thing in a constructor, with ``locals()``.

    >>> class Example:
    ...     def __init__(self, alpha: float = 0.5, k: int = 5) -> None:
    ...         self.changed = changed_settings(Example, locals())
    >>> Example(k=3).changed
    {'k'}
    """
    parameters = inspect.signature(method).parameters
    return {name for name, parameter in parameters.items() if values[name] != parameter.default}


def refuse_idle(needed: str, met: bool, changed: set[str], *names: str) -> None:
    """Raise an error for settings that were changed but have no effect.

    Args:
        needed: what these settings need, in words.
        met: whether it is there.
        changed: see :func:`changed_settings`.
        names: the settings that would have no effect.
    """
    idle = [name for name in names if name in changed]
    if idle and not met:
        raise InputError(f"{' and '.join(idle)} would have no effect without {needed}")


def refuse_patience(patience: int | None) -> None:
    """Raise an error for early stopping where pseudo-labels are given until the last epoch."""
    if patience is not None:
        raise InputError(
            "--patience could end the training before all pseudo-labels are given; leave it out, "
            "and set --epochs"
        )


def refuse_more_than_memory(what: str, needed_bytes: int) -> None:
    """Raise an error for a number per training label that does not fit into memory.

    Args:
        what: who needs it for what, in words: "ROLE for the estimates".
        needed_bytes: for all training labels.
    """
    if needed_bytes > physical_memory():
        who, _, purpose = what.partition(" for ")
        raise InputError(
            f"{who} needs {data_size(needed_bytes)} of memory for {purpose} of all training "
            "labels, more than this machine has; em-apl keeps its labels on disk"
        )


def warn_of_positives_only(
    labels: LabelTable, method: str, instead: str = "Use em-apl, or an"
) -> None:
    """Warn where a method that ignores unknown labels has no absent label to learn from."""
    if not labels.counts().absent.any():
        warnings.warn(
            f"no training label is known to be absent: {method} learns that everything is present. "
            f"{instead}",
            PartlabelWarning,
            stacklevel=3,
        )
