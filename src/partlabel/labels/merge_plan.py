"""What to merge, and how to read each file: from the command line or from a YAML file."""

import os
import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from partlabel.base.errors import FileError, InputError, one_of
from partlabel.base.validation import first_problem
from partlabel.labels.combine import Conflict
from partlabel.labels.formats.reading_options import split_names

_OPTION = re.compile(r"^(?P<rest>.+):(?P<name>[a-z_-]+)=(?P<value>[^:]*)$", re.DOTALL)
_LISTS = ("ignore_columns", "only_classes")
_READING = ("format", "unlisted", *_LISTS, "min_count", "ignore_case")
_OPTIONS = (*_READING, "origin", "notes")
_NOTES = ("presences", "absences")

Noted = Literal["presences", "absences"]


class _Reading(BaseModel):
    """How to read a label file: the fields of :class:`ReadOptions` without ``rename``."""

    model_config = ConfigDict(extra="forbid")
    format: str | None = None
    unlisted: Literal["absent", "unknown"] | None = None
    ignore_columns: list[str] = []
    only_classes: list[str] = []
    min_count: int | None = Field(default=None, ge=1)
    ignore_case: bool = False

    @property
    def reading(self) -> dict[str, Any]:
        """The fields of :class:`ReadOptions` that are set."""
        values = {name: getattr(self, name) for name in _READING}
        return {name: value for name, value in values.items() if value}


class FileEntry(_Reading):
    """A label file to merge, and how to read it.

    Args:
        path: the file, or the folder for formats that are folders.
        origin: the origin of its labels that have none; None takes the name of the file.
        rename: new names of its classes.
        notes: ``"presences"`` if its absent labels are no evidence, because the annotators only
            noted what they saw: they are read as unknown. ``"absences"`` is the opposite. A mapping
            states it for some classes of the file.
    """

    path: Path
    origin: str | None = Field(default=None, min_length=1)
    rename: dict[str, str] = {}
    notes: Noted | dict[str, Noted] | None = None

    @field_validator("notes", mode="before")
    @classmethod
    def _check_notes(cls, notes: Any) -> Any:
        """Pydantic's own message about this type names every alternative."""
        values = notes.values() if isinstance(notes, dict) else [notes]
        if notes is not None and any(value not in _NOTES for value in values):
            raise ValueError("must be presences, absences, or one of them for each class")
        return notes


class MergePlan(_Reading):
    """Label files to merge, and what to do with their classes.

    How to read files applies to those that state nothing else, and ``unlisted`` only to files that
    list only present classes.

    Args:
        files: the files, in the order that matters to ``conflict``.
        conflict: the rule for labels on which files disagree, as in :meth:`LabelTable.merge`.
        rename: new names of classes, in all files.
        synonyms: a file with one group of synonyms per line.
        hierarchy: a file with lines ``child,parent``, or the JSON of Open Images.
        images: the folder of the images; each image is then named after its file.
    """

    files: list[FileEntry] = Field(min_length=1)
    conflict: Conflict = "error"
    rename: dict[str, str] = {}
    synonyms: Path | None = None
    hierarchy: Path | None = None
    images: Path | None = None


def parse_file(text: str, folder: Path = Path()) -> FileEntry:
    """A file with options, such as ``web.csv:unlisted=unknown:origin=web``.

    A file in the folder whose own name looks like that is read as it is.

    >>> entry = parse_file("web.csv:unlisted=unknown:origin=web")
    >>> str(entry.path), entry.unlisted, entry.origin
    ('web.csv', 'unknown', 'web')
    """
    rest, options = text, dict[str, Any]()
    while not os.path.lexists(folder / rest) and (match := _OPTION.match(rest)):
        name = match["name"].replace("-", "_")
        if name not in _OPTIONS:
            _check_option(text, name)
        if name in options:
            raise InputError(f"{text}: the option '{name}' is given twice")
        value = match["value"]
        options[name] = split_names(value) if name in _LISTS else value
        rest = match["rest"]
    try:
        return FileEntry(path=Path(rest), **options)
    except ValidationError as error:
        raise InputError(f"{text}: {_described(error)}") from None


def _check_option(text: str, name: str) -> None:
    try:
        one_of("option of a file", name, _OPTIONS)
    except InputError as error:
        raise InputError(f"{text}: {error}") from None


def read_plan(path: Path) -> MergePlan:
    """Read a YAML file; paths in it are relative to its folder."""
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror})") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1:,}" if mark is not None else ""
        problem = getattr(error, "problem", None) or error
        raise FileError(path, f"not valid YAML: {problem}", where) from error
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise FileError(path, "expected a key 'files' with a list of label files")
    try:
        if isinstance(content.get("files"), list):
            content["files"] = [
                parse_file(entry, path.parent) if isinstance(entry, str) else entry
                for entry in content["files"]
            ]
        plan = MergePlan.model_validate(content)
    except ValidationError as error:
        raise FileError(path, _described(error)) from None
    except InputError as error:
        raise FileError(path, str(error)) from None
    files = [entry.model_copy(update={"path": path.parent / entry.path}) for entry in plan.files]
    others = {
        name: path.parent / value
        for name in ("synonyms", "hierarchy", "images")
        if (value := getattr(plan, name)) is not None
    }
    return plan.model_copy(update={"files": files, **others})


def _described(error: ValidationError) -> str:
    """The first problem that pydantic found, with its location in the file and the choices."""
    location, kind, message = first_problem(error)
    *outer, last = location or ("",)
    of_file = "".join(f" of file {part + 1}" if isinstance(part, int) else "" for part in outer)
    if kind == "extra_forbidden":
        model = FileEntry if of_file else MergePlan
        return f"there is no key '{last}'{of_file} (choices: {', '.join(model.model_fields)})"
    if kind == "invalid_key":
        return f"the keys{of_file} must be text"
    if isinstance(last, int):
        return f"number {last + 1} of '{outer[-1]}' {message}" if outer else message
    return f"'{last}'{of_file} {message}"
