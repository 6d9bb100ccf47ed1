"""JSON lines: one JSON object per line."""

import json
from typing import Any

from partlabel.labels.formats.source import Source, unique_keys


def read_objects(source: Source) -> list[tuple[str, dict[str, Any]]]:
    """The location and the object of each line that is not blank, without ignored keys."""
    objects: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            raise source.error(f"not valid JSON: {error}", source.line(number)) from error
        if not isinstance(item, dict):
            raise source.error("expected a JSON object {...}", source.line(number))
        objects.append((source.line(number), item))
    if source.options.ignore_columns:
        ignored = source.ignored(list(dict.fromkeys(key for _, item in objects for key in item)))
        for _, item in objects:
            for key in ignored & set(item):
                del item[key]
    return objects
