"""Label files: which formats there are, and how to read and write them.

A new format is a class in a file of its own and a line in ``FORMATS``.
"""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partlabel.errors import FileError, InputError, PartlabelWarning, one_of
from partlabel.formats.arrow import Arrow
from partlabel.formats.base import Format
from partlabel.formats.coco import Coco, Lvis
from partlabel.formats.imagefolder import ImageFolder
from partlabel.formats.label_studio import LabelStudio
from partlabel.formats.long import CellList, OpenImages
from partlabel.formats.source import Source
from partlabel.formats.stated import Contradiction, Notes, assemble
from partlabel.formats.voc import Voc
from partlabel.formats.wide import CheXpert, Csv
from partlabel.images import ImageFiles
from partlabel.labels import LabelTable, Names

__all__ = ["FORMATS", "Contradiction", "Notes", "Reading", "read", "read_labels", "write_labels"]

FORMATS: dict[str, Format] = {
    "csv": Csv(),
    "cells": CellList(),
    "open-images": OpenImages(),
    "coco": Coco(),
    "lvis": Lvis(),
    "voc": Voc(),
    "label-studio": LabelStudio(),
    "hf": ImageFolder(),
    "chexpert": CheXpert(),
    "arrow": Arrow(),
}

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Reading:
    """A table, and what was noticed while it was read."""

    table: LabelTable
    notes: Notes


def read_labels(
    path: PathLike,
    format: str | None = None,
    unlisted: str | None = None,
    images: PathLike | None = None,
) -> LabelTable:
    """Read a label file.

    Args:
        path: the file, or the folder for formats that are one.
        format: one of ``FORMATS``; None decides by content.
        unlisted: what a class is in an image for which the file does not list it, ``"absent"`` or
            ``"unknown"``. Formats that list only what is present need it; the others take what is
            not listed for unknown.
        images: a folder of images; those that the file does not mention join the table, with
            nothing known.
    """
    return read(path, format, unlisted, images).table


def read(
    path: PathLike,
    format: str | None = None,
    unlisted: str | None = None,
    images: PathLike | None = None,
    *,
    strict: bool = True,
) -> Reading:
    """As :func:`read_labels`, with notes; if not ``strict``, contradictions are noted, not raised.

    A contradiction is a cell that the file states as present and as absent.
    """
    source = Source(path)
    chosen = FORMATS[one_of("format", format, FORMATS)] if format else _decide(source)
    _check_unlisted(source, chosen, unlisted)
    try:
        stated = chosen.read(source)
        table = assemble(stated, unlisted, strict=strict)
    except FileError:
        raise
    except InputError as error:
        raise source.error(str(error)) from None
    except MemoryError as error:
        raise source.error("does not fit into memory") from error
    stated.notes.format = chosen.name
    if source.kind == "text" and source.text.encoding != "utf-8":
        stated.notes.remarks.append(f"not UTF-8, read as {source.text.encoding}")
    if images is not None:
        table = _with_images(table, ImageFiles(images))
    return Reading(table, stated.notes)


def write_labels(table: LabelTable, path: PathLike, format: str | None = None) -> None:
    """Write a label file, whole or not at all; warns of what the format cannot hold.

    Args:
        path: the file, or the new folder for formats that are one.
        format: one of ``FORMATS``; None goes by the ending of the file's name.
    """
    path = Path(path)
    chosen = FORMATS[one_of("format", format, FORMATS)] if format else _by_suffix(path)
    lost = chosen.drops(table)
    if lost:
        message = f"{path}: the format '{chosen.name}' cannot hold {', nor '.join(lost)}"
        warnings.warn(message, PartlabelWarning, stacklevel=2)
    chosen.write(table, path)


def _decide(source: Source) -> Format:
    found = [candidate for candidate in FORMATS.values() if candidate.matches(source)]
    if len(found) == 1:
        return found[0]
    if found:
        names = " or ".join(f"--format {candidate.name}" for candidate in found)
        raise source.error(f"could be of several formats; say which: {names}")
    seen = ""
    if source.kind == "text":
        seen = f" (its header is {', '.join(source.header)[:80]!r})"
    choices = ", ".join(FORMATS)
    raise source.error(f"looks like no label format{seen}; say which with --format: {choices}")


def _check_unlisted(source: Source, chosen: Format, unlisted: str | None) -> None:
    if unlisted is not None:
        one_of("meaning of unlisted", unlisted, ("absent", "unknown"))
    if chosen.lists_only_present and unlisted is None:
        raise source.error(
            f"the format '{chosen.name}' lists only what is present; say what a class is that an "
            "image does not list: --unlisted unknown (nobody looked for it) or --unlisted absent "
            "(all were looked for) (in Python: unlisted=...)"
        )
    if chosen.lists_every_cell and unlisted == "absent":
        raise source.error(
            f"the format '{chosen.name}' lists every cell, and an empty one is unknown; "
            "leave out --unlisted absent, or fill the cells with 0"
        )


def _by_suffix(path: Path) -> Format:
    if path.name.lower() == "metadata.parquet":
        return FORMATS["hf"]
    suffix = path.suffix.lower()
    for candidate in FORMATS.values():
        if suffix in candidate.suffixes:
            return candidate
    json = "; .json may be coco, lvis or label-studio" if suffix == ".json" else ""
    raise InputError(f"{path}: its name does not tell the format; say which with --to{json}")


def _with_images(table: LabelTable, files: ImageFiles) -> LabelTable:
    mentioned = {path for path in files.locate(table.ids) if path is not None}
    new = [name for name in files.names if files.folder / name not in mentioned]
    if not new:
        return table
    nothing = np.zeros((len(new), len(table.classes)), dtype=np.int8)
    return table.merge(LabelTable(Names(new), table.classes, nothing))
