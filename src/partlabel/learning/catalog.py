"""Descriptions of the methods and their settings, as text."""

import inspect
import re

from partlabel.base.errors import one_of
from partlabel.learning.methods import METHODS


def summaries() -> list[tuple[str, str]]:
    """Name and first line of the description of each method, without citation marks."""
    citation = re.compile(r" \[[\d, ]+\]")
    return [(name, citation.sub("", _text(name).splitlines()[0])) for name in METHODS]


def description(name: str) -> str:
    """What a method does, its settings, its defaults for the training, and its papers."""
    method = METHODS[one_of("method", name, METHODS)]
    sections = [_text(name)]
    values = [
        f"--set {setting}={_format(parameter.default)}"
        for setting, parameter in inspect.signature(method).parameters.items()
    ]
    if values:
        sections.append("Default settings:\n    " + "\n    ".join(values))
    if method.defaults:
        changed = "\n    ".join(f"{key} = {value}" for key, value in method.defaults.items())
        sections.append("Default training settings of this method:\n    " + changed)
    sections += [_references(name)] if _references(name) else []
    return "\n\n".join(sections)


def _text(name: str) -> str:
    """The docstring of a method."""
    return (inspect.getdoc(METHODS[name]) or "").replace("``", "")


def _references(name: str) -> str:
    """The list of papers in the docstring of the method's module."""
    text = inspect.getdoc(inspect.getmodule(METHODS[name])) or ""
    return text[text.index("[1]") :] if "[1]" in text else ""


def _format(value: object) -> str:
    """A default as it would be written on the command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
