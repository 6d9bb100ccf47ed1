"""What methods there are, and what can be set in each, told in words."""

import inspect
import re

from partlabel.base.errors import one_of
from partlabel.learning.methods import METHODS


def summaries() -> list[tuple[str, str]]:
    """Name and first line of each method, without the marks of its papers."""
    marks = re.compile(r" \[[\d, ]+\]")
    return [(name, marks.sub("", _text(name).splitlines()[0])) for name in METHODS]


def description(name: str) -> str:
    """All about one method: what it does, its settings, and what it changes in the training."""
    method = METHODS[one_of("method", name, METHODS)]
    sections = [_text(name)]
    values = [
        f"--set {setting}={_shown(parameter.default)}"
        for setting, parameter in inspect.signature(method).parameters.items()
    ]
    if values:
        sections.append("As set by default:\n    " + "\n    ".join(values))
    if method.defaults:
        changed = "\n    ".join(f"{key} = {value}" for key, value in method.defaults.items())
        sections.append("Training, unless told otherwise:\n    " + changed)
    sections += [_cited(name)] if _cited(name) else []
    return "\n\n".join(sections)


def _text(name: str) -> str:
    return (inspect.getdoc(METHODS[name]) or "").replace("``", "")


def _cited(name: str) -> str:
    """The papers that the text refers to, as its module lists them."""
    about = inspect.getdoc(inspect.getmodule(METHODS[name])) or ""
    return about[about.index("[1]") :] if "[1]" in about else ""


def _shown(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
