"""Command options made from settings, which define their names, types, defaults and help."""

import inspect
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from partlabel.base.errors import InputError
from partlabel.training.settings import default_text_of, panel_of

FLAGS = {"options": "--set", "head_options": "--head-set"}  # that differ from the field's name


def option_of(name: str) -> str:
    """The command option of a setting.

    >>> option_of("weight_decay"), option_of("options")
    ('--weight-decay', '--set')
    """
    return FLAGS.get(name, "--" + name.replace("_", "-"))


def parameters_of(model: type[BaseModel], skip: tuple[str, ...] = ()) -> list[inspect.Parameter]:
    """Parameters of a typer command, one per field; None means that an option was not given."""
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                _option_type(field.annotation),
                typer.Option(
                    *_flags(name, field),
                    help=_help(field),
                    rich_help_panel=panel_of(field),
                    show_default=False,
                ),
            ],
        )
        for name, field in model.model_fields.items()
        if name not in skip
    ]


def values_of(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields for which an option was given."""
    fields = {}
    for name, field in model.model_fields.items():
        value = values.get(name)
        if value is None or value == []:
            continue
        is_dict = get_origin(field.annotation) is dict
        fields[name] = _pairs(option_of(name), value) if is_dict else value
    return fields


def _flags(name: str, field: FieldInfo) -> tuple[str, ...]:
    """The option of a setting; one that is true or false can also be switched off."""
    option = option_of(name)
    is_flag = field.annotation is bool
    return (f"{option}/--no-{option.removeprefix('--')}",) if is_flag else (option,)


def _help(field: FieldInfo) -> str:
    default = default_text_of(field)
    return f"{field.description}" + ("" if default is None else f" (default: {default})")


def _option_type(annotation: Any) -> Any:
    """The type of an option that may not be given."""
    if annotation is bool:
        return Optional[bool]  # noqa: UP045
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
        origin = get_origin(annotation)
    if origin in (dict, list):
        return Optional[list[str]]  # noqa: UP045  # typer reads the annotation
    if origin is Literal:
        return Optional[str]  # noqa: UP045
    assert annotation in (str, int, float, Path), annotation
    return Optional[annotation]  # noqa: UP045


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    """The values of ``option key=value``, which may be given several times."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text}: must have the form key=value")
        if name in pairs:
            raise InputError(f"{option} {name} is given twice")
        pairs[name] = value
    return pairs
