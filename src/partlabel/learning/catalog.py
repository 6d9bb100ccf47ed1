"""The methods and their settings as text, for ``partlabel methods``."""

import inspect
import re
from typing import Any

from partlabel.base.errors import one_of
from partlabel.learning.methods import METHODS, Method


def summaries() -> list[tuple[str, str]]:
    """The name of each method, and the first line of its description without citation marks."""
    citation = re.compile(r" \[[\d, ]+\]")
    return [(name, citation.sub("", _text(name).splitlines()[0])) for name in METHODS]


def description(name: str) -> str:
    """What a method does, its settings, its defaults for the training, and its papers."""
    method = METHODS[one_of("method", name, METHODS)]
    settings = [f"--set {setting}={_format(value)}" for setting, value in _settings(method).items()]
    defaults = [f"{setting} = {value}" for setting, value in method.defaults.items()]
    sections = [
        _text(name),
        _list("Default settings:", settings),
        _list("Default training settings of this method:", defaults),
        _references(name),
    ]
    return "\n\n".join(section for section in sections if section)


def _settings(method: type[Method]) -> dict[str, Any]:
    """The settings of a method and their defaults.

    A method without its own constructor has that of torch modules, whose ``*args`` and ``**kwargs``
    are not settings.
    """
    return {
        name: parameter.default
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    }


def _list(heading: str, lines: list[str]) -> str:
    """Indented lines under a heading; an empty string if there are none."""
    return "\n    ".join([heading, *lines]) if lines else ""


def _text(name: str) -> str:
    """The docstring of a method, with code in single backticks."""
    return (inspect.getdoc(METHODS[name]) or "").replace("``", "`")


def _references(name: str) -> str:
    """The papers in the docstring of the method's module; an empty string if there are none."""
    text = inspect.getdoc(inspect.getmodule(METHODS[name])) or ""
    return text[text.index("[1]") :] if "[1]" in text else ""


def _format(value: object) -> str:
    """A default as it is written on the command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
