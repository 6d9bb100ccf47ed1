"""Checks of the structure of JSON label files, with clear errors."""

from typing import Any

from partlabel.labels.formats.source import Source

_TYPE_NAMES = {dict: "an object {...}", list: "a list [...]", str: "a text", int: "a whole number"}


def expect(source: Source, value: object, kind: type | tuple[type, ...], where: str) -> Any:
    """Return ``value`` if it has this type, else raise an error that names both."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if isinstance(value, kinds) and not isinstance(value, bool):
        return value
    excerpt = repr(value)
    excerpt = excerpt if len(excerpt) < 50 else excerpt[:47] + "..."
    expected = " or ".join(_TYPE_NAMES[k] for k in kinds)
    raise source.error(f"expected {expected}, found {excerpt}", where)


def member(
    source: Source, item: dict[str, Any], key: str, kind: type | tuple[type, ...], where: str
) -> Any:
    """Return ``item[key]`` if it exists and has this type, else raise an error."""
    if key not in item:
        raise source.error(f"'{key}' is missing", where)
    return expect(source, item[key], kind, f"{where}.{key}")


def objects(source: Source, document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return ``document[key]`` if it is a list of objects, else raise an error."""
    items: list[dict[str, Any]] = member(source, document, key, list, "the document")
    for number, item in enumerate(items):
        expect(source, item, dict, f"{key}[{number}]")
    return items
