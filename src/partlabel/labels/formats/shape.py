"""The shape of JSON label files, checked where it is used; a wrong one is a clear error."""

from typing import Any

from partlabel.labels.formats.source import Source

_WORDS = {dict: "an object {...}", list: "a list [...]", str: "a text", int: "a whole number"}


def expect(source: Source, value: object, kind: type | tuple[type, ...], where: str) -> Any:
    """``value`` if it is of this kind, else an error that says what stands at ``where`` instead."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if isinstance(value, kinds) and not isinstance(value, bool):
        return value
    shown = repr(value)
    shown = shown if len(shown) < 50 else shown[:47] + "..."
    wanted = " or ".join(_WORDS[k] for k in kinds)
    raise source.error(f"expected {wanted}, found {shown}", where)


def member(
    source: Source, item: dict[str, Any], key: str, kind: type | tuple[type, ...], where: str
) -> Any:
    """``item[key]`` if it is there and of this kind."""
    if key not in item:
        raise source.error(f"'{key}' is missing", where)
    return expect(source, item[key], kind, f"{where}.{key}")


def objects(source: Source, document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """``document[key]`` if it is a list of objects."""
    items: list[dict[str, Any]] = member(source, document, key, list, "the document")
    for number, item in enumerate(items):
        expect(source, item, dict, f"{key}[{number}]")
    return items
