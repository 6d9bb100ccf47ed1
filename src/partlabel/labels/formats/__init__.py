"""Reading and writing label files.

To add a format, write a class in a file of its own and add it to ``FORMATS``.
"""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import numpy as np

from partlabel.base.errors import FileError, InputError, PartlabelWarning, one_of
from partlabel.images.collection import Images
from partlabel.images.named_images import open_images
from partlabel.labels import LabelTable, Names
from partlabel.labels.combine import Conflict
from partlabel.labels.formats.arrow import Arrow
from partlabel.labels.formats.cell_list import CellList
from partlabel.labels.formats.class_folders import ClassFolders
from partlabel.labels.formats.coco import Coco, Lvis
from partlabel.labels.formats.cvat import Cvat
from partlabel.labels.formats.format import Format
from partlabel.labels.formats.formulas import quoted_table
from partlabel.labels.formats.hf_disk import HfDisk, HfDiskLists
from partlabel.labels.formats.hints import hint
from partlabel.labels.formats.imagefolder import ImageFolder
from partlabel.labels.formats.joining import join_classes
from partlabel.labels.formats.label_studio import LabelStudio
from partlabel.labels.formats.lists import Lists
from partlabel.labels.formats.long import OpenImages
from partlabel.labels.formats.names_only import NameList
from partlabel.labels.formats.packing import is_packed, unpacked_suffix
from partlabel.labels.formats.reading_options import (
    ClassKeywords,
    ReadKeywords,
    ReadOptions,
    read_options,
)
from partlabel.labels.formats.restriction import (
    check_names,
    has_one_each,
    only_asked,
    only_frequent,
)
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Contradiction, Notes, Stated, assemble
from partlabel.labels.formats.tags import Tags
from partlabel.labels.formats.voc import Voc
from partlabel.labels.formats.wide import CheXpert, Csv

__all__ = [
    "FORMATS",
    "Contradiction",
    "Notes",
    "ReadKeywords",
    "ReadOptions",
    "Reading",
    "columns_of",
    "needs_unlisted",
    "read",
    "read_labels",
    "read_options",
    "read_with",
    "target_format",
    "write_labels",
]

FORMATS: dict[str, Format] = {
    "csv": Csv(),
    "cells": CellList(),
    "tags": Tags(),
    "lists": Lists(),
    "folders": ClassFolders(),
    "names": NameList(),
    "open-images": OpenImages(),
    "coco": Coco(),
    "lvis": Lvis(),
    "voc": Voc(),
    "label-studio": LabelStudio(),
    "cvat": Cvat(),
    "hf": ImageFolder(),
    "hf-disk": HfDisk(),
    "hf-disk-lists": HfDiskLists(),
    "chexpert": CheXpert(),
    "arrow": Arrow(),
}

PathLike = str | os.PathLike[str]


_EXCEL = (".xls", ".ods")  # also .xlsx, .xlsm and .xlsx#sheet
_NO_EXCEL = (
    "Excel files can only be read; write a .csv file, which Excel opens (--excel-safe protects "
    "names that look like formulas)"
)
_MANY_IMAGES = 50  # that have one class each hardly by chance


@dataclass(frozen=True)
class Reading:
    """A table, and the reader's remarks about the file."""

    table: LabelTable
    notes: Notes

    @property
    def file_classes(self) -> list[str]:
        """The classes as the file names them."""
        return list(self.notes.names or self.table.classes)


def read_labels(
    path: PathLike,
    format: str | None = None,
    unlisted: str | None = None,
    images: PathLike | None = None,
    **more: Unpack[ClassKeywords],
) -> LabelTable:
    """Read a label file.

    Args:
        path: the file, or the folder for the formats that are folders. ``file.xlsx#sheet`` is a
            sheet of an Excel file.
        format: one of ``FORMATS``; None detects it from the content.
        unlisted: the meaning of a class that the file does not list for an image, ``"absent"`` or
            ``"unknown"``. Required for formats that list only present classes. For the others the
            default is unknown.
        images: a folder of images; those that the file does not mention are added to the table,
            with all labels unknown.
        more: ``ignore_columns``, ``only_classes``, ``min_count``, ``rename`` and ``ignore_case``,
            see :class:`ReadOptions`.
    """
    return read(path, format, unlisted, images, **more).table


def read(
    path: PathLike,
    format: str | None = None,
    unlisted: str | None = None,
    images: PathLike | None = None,
    *,
    strict: bool = True,
    **more: Unpack[ClassKeywords],
) -> Reading:
    """Read a label file as :func:`read_labels` does, and return the reader's notes too.

    Args:
        strict: raise an error if the file states a label both as present and as absent. If not
            strict, the label becomes unknown and the notes list the contradiction.
    """
    options = ReadOptions(format, unlisted, **more)
    return read_with(path, options, images, strict=strict)


def read_with(
    path: PathLike,
    options: ReadOptions,
    images: PathLike | None = None,
    *,
    strict: bool = True,
    conflict: Conflict = "error",
) -> Reading:
    """Read a label file as :func:`read` does, with all options in one object.

    ``conflict`` is the rule for classes that become one and contradict each other in an image.
    """
    source = Source(path, options)
    chosen = _format_of(source)
    try:
        stated = only_asked(source, chosen.read(source))
        _check_unlisted(source, chosen, stated)
        stated = join_classes(stated, options, conflict, strict=strict)
        stated = only_frequent(source, stated)
        if chosen.has_free_names:
            check_names(source, stated, strict=strict)
        table = assemble(stated, options.unlisted, strict=strict)
    except FileError:
        raise
    except InputError as error:
        raise source.error(str(error)) from None
    except OSError as error:
        raise source.error(f"cannot be read ({error.strerror or error})") from error
    except MemoryError as error:
        raise source.error("does not fit into memory") from error
    finally:
        source.parsed = None  # frees the table now, since it and its source refer to each other
    stated.notes.format = chosen.name
    stated.notes.remarks[:0] = source.remarks
    if source.kind == "text" and source.text.encoding == "latin-1":
        stated.notes.remarks.append("not UTF-8, read as Latin-1")
        message = f"{source.path}: not UTF-8, read as Latin-1; check names with accents"
        warnings.warn(message, PartlabelWarning, stacklevel=4)
    if images is not None:
        table = _with_images(table, open_images(images))
    return Reading(table, stated.notes)


def write_labels(
    table: LabelTable,
    path: PathLike,
    format: str | None = None,
    *,
    shown_as: PathLike | None = None,
    excel_safe: bool = False,
) -> list[str]:
    """Write a label file atomically; warn about information that the format cannot hold.

    Args:
        path: the file, or the new folder for the formats that are folders.
        format: one of ``FORMATS``; None chooses it by the suffix of the file name.
        shown_as: the path in messages, if ``path`` is temporary.
        excel_safe: whether names in CSV files that a spreadsheet would run as formulas get an
            apostrophe, which the readers take off; other files are not affected.

    Returns:
        Descriptions of the information that was lost; empty if nothing was.
    """
    path = Path(path)
    chosen = target_format(path, format)
    lost = chosen.losses(table)
    if lost:
        message = (
            f"{shown_as or path}: the format '{chosen.name}' cannot hold {', nor '.join(lost)}"
        )
        warnings.warn(message, PartlabelWarning, stacklevel=2)
    if chosen.writes_text_table(path):
        table = quoted_table(table, excel_safe=excel_safe)
    chosen.write(table, path)
    return lost


def target_format(path: PathLike, format: str | None = None) -> Format:
    """The format for a new file; an error if it is unclear or the folder does not exist."""
    path = Path(path)
    if unpacked_suffix(path).startswith(_EXCEL):
        raise FileError(path, _NO_EXCEL)
    chosen = FORMATS[one_of("format", format, FORMATS)] if format else _by_suffix(path)
    if not chosen.writable:
        raise FileError(path, f"files of the format '{chosen.name}' can only be read")
    if is_packed(path) and not (chosen.is_text and unpacked_suffix(path) != ".parquet"):
        raise FileError(
            path,
            f"a file of the format '{chosen.name}' cannot be compressed; leave out the "
            f"'{path.suffix}'",
        )
    if not path.parent.is_dir():
        raise FileError(path, "cannot write here: its folder does not exist")
    return chosen


def needs_unlisted(path: PathLike, options: ReadOptions | None = None) -> bool:
    """Whether a file lists only present classes, so that ``unlisted`` is required."""
    return _format_of(Source(path, options)).lists_only_present


def columns_of(path: PathLike) -> list[str]:
    """The columns of a table; none if the file is no table."""
    source = Source(path)
    if source.kind == "parquet":
        return source.parquet_columns
    return source.all_columns if source.kind == "text" else []


def _format_of(source: Source) -> Format:
    """The format that was asked for, or the one that the content has."""
    format = source.options.format
    return FORMATS[one_of("format", format, FORMATS)] if format else _detect(source)


def _detect(source: Source) -> Format:
    try:
        matching = [candidate for candidate in FORMATS.values() if candidate.matches(source)]
    except OSError as error:
        raise source.error(f"cannot be read ({error.strerror or error})") from error
    if len(matching) == 1:
        return matching[0]
    if matching:
        options = " or ".join(f"--format {candidate.name}" for candidate in matching)
        raise source.error(f"matches several formats; choose one with {options}")
    choices = f"; choose one with --format: {', '.join(FORMATS)}"
    other_sheets = ""
    if source.sheets > 1:
        file = str(source.path).removesuffix(f"#{source.sheet}")
        other_sheets = f"; it has {source.sheets} sheets, and {file}#SHEET is another one"
    raise source.error(
        f"matches no label format{hint(source) if source.kind == 'text' else choices}{other_sheets}"
    )


def _check_unlisted(source: Source, chosen: Format, stated: Stated) -> None:
    unlisted = source.options.unlisted
    if chosen.lists_only_present and unlisted is None:
        likely = ""
        if has_one_each(stated):
            likely = (
                "; every image has exactly one class here, so the others were probably not "
                "checked: --unlisted unknown is the likely answer"
            )
        raise source.error(
            f"the format '{chosen.name}' lists only present classes, so the meaning of an unlisted "
            "class must be given: --unlisted unknown (nobody checked it) or --unlisted absent "
            f"(annotators checked every class) (in merge: {source.path.name}:unlisted=..., in "
            f"Python: unlisted=...){likely}"
        )
    many = len(stated.images) >= _MANY_IMAGES
    if chosen.lists_only_present and unlisted == "absent" and many and has_one_each(stated):
        warnings.warn(
            f"{source.path}: every image has exactly one class here. Read all other classes as "
            "absent only if somebody checked them; if not, use unlisted=unknown",
            PartlabelWarning,
            stacklevel=4,
        )
    if chosen.lists_every_cell and unlisted == "absent":
        raise source.error(
            f"the format '{chosen.name}' lists every label, and an empty one is unknown; "
            "leave out --unlisted absent, or write 0 for absent"
        )


def _by_suffix(path: Path) -> Format:
    if path.name.lower() in ("metadata.csv", "metadata.parquet"):
        return FORMATS["hf"]
    suffix = unpacked_suffix(path)
    for candidate in FORMATS.values():
        if suffix in candidate.suffixes:
            return candidate
    hint = " (.json can be coco, lvis or label-studio)" if suffix == ".json" else ""
    raise InputError(f"{path}: cannot choose a format by the file name; use --to{hint}")


def _with_images(table: LabelTable, files: Images) -> LabelTable:
    """The table with all other images that are there added, their labels unknown."""
    mentioned = {match.file for match in files.match(table.ids) if match is not None}
    new = [name for name in files.names if name not in mentioned]
    if not new:
        return table
    unknown = np.zeros((len(new), len(table.classes)), dtype=np.int8)
    return table.merge(LabelTable(Names(new), table.classes, unknown))
