"""The options of all commands that read labels: how to read the file."""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

if TYPE_CHECKING:
    from partlabel.labels.formats import ReadOptions

FORMATS = (
    "csv, cells, tags, lists, folders, names, open-images, coco, lvis, voc, label-studio, cvat, "
    "hf, hf-disk, hf-disk-lists, chexpert or arrow"
)
PANEL = "Reading labels"


def _option(kind: Any, flag: str, help: str) -> Any:
    option = typer.Option(flag, help=help, rich_help_panel=PANEL, show_default=False)
    return Annotated[kind, option]


_PARAMETERS = {
    "format": _option(
        Optional[str],  # noqa: UP045  # typer reads the annotation
        "--format",
        f"Format of the label file to read: {FORMATS}. Use it if a file matches several formats, "
        "or none. (default: detected from the content)",
    ),
    "unlisted": _option(
        Optional[str],  # noqa: UP045
        "--unlisted",
        "Meaning of a class that the file does not list for an image: absent (annotators checked "
        "every class) or unknown (nobody checked it). Required for formats that list only present "
        "classes, such as tags and coco. (default for other formats: unknown)",
    ),
    "ignore_columns": _option(
        Optional[list[str]],  # noqa: UP045
        "--ignore-columns",
        "Columns that are no classes, separated by commas. Can be given several times.",
    ),
    "only_classes": _option(
        Optional[list[str]],  # noqa: UP045
        "--only-classes",
        "Read only these classes, separated by commas. Can be given several times.",
    ),
    "min_count": _option(
        Optional[int],  # noqa: UP045
        "--min-count",
        "Leave out classes that are present in fewer images than this.",
    ),
    "ignore_case": _option(
        Optional[bool],  # noqa: UP045
        "--ignore-case",
        "Classes whose names differ only in case are one class.",
    ),
}


def reads_labels(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options for reading, in place of its parameter ``reading``."""
    signature = inspect.signature(command)
    others = [p for p in signature.parameters.values() if p.name != "reading"]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _PARAMETERS.items()
    ]
    variable = [p for p in others if p.kind is p.VAR_KEYWORD]
    others = [p for p in others if p.kind is not p.VAR_KEYWORD]

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        command(reading=_options(values), **values)

    parameters = [*others, *options, *variable]
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {
        name: kind for name, kind in command.__annotations__.items() if name != "reading"
    }
    return with_options


def _options(values: dict[str, Any]) -> "ReadOptions":
    """Take the options for reading out of the values of a command."""
    from partlabel.labels.formats import ReadOptions
    from partlabel.labels.formats.reading_options import split_names

    options = {name: values.pop(name) for name in _PARAMETERS}
    for name in ("ignore_columns", "only_classes"):
        options[name] = tuple(part for text in options[name] or () for part in split_names(text))
    return ReadOptions(**options | {"ignore_case": bool(options["ignore_case"])})
