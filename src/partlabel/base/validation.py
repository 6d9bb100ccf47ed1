"""Problems that pydantic finds in files of users, in plain words."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

_MESSAGES = {
    "missing": "is missing",
    "list_type": "must be a list",
    "dict_type": "must have keys with values (name: value)",
    "model_type": "must have keys with values (name: value)",
    "model_attributes_type": "must have keys with values (name: value)",
    "string_type": "must be text",
    "path_type": "must be text",
    "invalid_key": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_too_short": "must not be empty",
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be more than {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be less than {lt:g}",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "enum": "must be {expected}",
    "json_invalid": "is not valid JSON",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have {min_length} or more entries",
    "literal_error": "must be {expected}",
    "extra_forbidden": "is not known here",
}


def first_problem(error: ValidationError) -> tuple[tuple[int | str, ...], str, str]:
    """Where the first problem is, its kind, and what is wrong, as the end of a sentence.

    >>> from pydantic import BaseModel
    >>> class Dish(BaseModel):
    ...     spoons: int
    >>> try:
    ...     Dish(spoons="many")
    ... except ValidationError as error:
    ...     print(first_problem(error))
    (('spoons',), 'int_parsing', "must be a whole number, not 'many'")
    """
    first = error.errors()[0]
    return first["loc"], first["type"], in_words(first)


def in_words(problem: Mapping[str, Any]) -> str:
    """What is wrong, from one entry of the ``errors()`` of pydantic or FastAPI."""
    kind, context = problem["type"], problem.get("ctx", {})
    message = _MESSAGES.get(kind)
    if message is None:
        own = context.get("error")  # of a check of ours
        return str(own or problem["msg"])
    return message.format(**context) + _instead(kind, problem.get("input"))


def _instead(kind: str, value: Any) -> str:
    """What was found instead, if it is short."""
    if kind in ("missing", "extra_forbidden", "too_short", "string_too_short", "invalid_key"):
        return ""
    text = repr(value)
    return f", not {text}" if len(text) <= 40 else ""
