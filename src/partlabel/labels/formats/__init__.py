"""Label files: which formats there are, and how to read and write them.

A new format is a class in a file of its own and a line in ``FORMATS``.
"""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partlabel.base.errors import FileError, InputError, PartlabelWarning, one_of
from partlabel.images.folder import ImageFiles
from partlabel.labels import LabelTable, Names
from partlabel.labels.formats.arrow import Arrow
from partlabel.labels.formats.coco import Coco, Lvis
from partlabel.labels.formats.format import Format
from partlabel.labels.formats.imagefolder import ImageFolder
from partlabel.labels.formats.label_studio import LabelStudio
from partlabel.labels.formats.long import CellList, OpenImages
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Contradiction, Notes, assemble
from partlabel.labels.formats.voc import Voc
from partlabel.labels.formats.wide import CheXpert, Csv

__all__ = [
    "FORMATS",
    "Contradiction",
    "Notes",
    "Reading",
    "needs_unlisted",
    "read",
    "read_labels",
    "target_format",
    "write_labels",
]

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
    except OSError as error:
        raise source.error(f"cannot be read ({error.strerror or error})") from error
    except MemoryError as error:
        raise source.error("does not fit into memory") from error
    stated.notes.format = chosen.name
    if source.kind == "text" and source.text.encoding == "latin-1":
        stated.notes.remarks.append("not UTF-8, read as Latin-1")
        message = f"{source.path}: not UTF-8, read as Latin-1; check names with accents"
        warnings.warn(message, PartlabelWarning, stacklevel=3)
    if images is not None:
        table = _with_images(table, ImageFiles(images))
    return Reading(table, stated.notes)


def write_labels(table: LabelTable, path: PathLike, format: str | None = None) -> list[str]:
    """Write a label file, whole or not at all; warns of what the format cannot hold.

    Args:
        path: the file, or the new folder for formats that are one.
        format: one of ``FORMATS``; None goes by the ending of the file's name.

    Returns:
        What was lost, in words; an empty list if nothing was.
    """
    path = Path(path)
    chosen = target_format(path, format)
    lost = chosen.drops(table)
    if lost:
        message = f"{path}: the format '{chosen.name}' cannot hold {', nor '.join(lost)}"
        warnings.warn(message, PartlabelWarning, stacklevel=2)
    chosen.write(table, path)
    return lost


def target_format(path: PathLike, format: str | None = None) -> Format:
    """The format to write; an error if that cannot be told, or the folder does not exist."""
    path = Path(path)
    chosen = FORMATS[one_of("format", format, FORMATS)] if format else _by_suffix(path)
    if not path.parent.is_dir():
        raise FileError(path, "cannot write here: its folder does not exist")
    return chosen


def needs_unlisted(path: PathLike, format: str | None = None) -> bool:
    """Whether a file lists only what is present, so that ``unlisted`` must be said."""
    chosen = FORMATS[one_of("format", format, FORMATS)] if format else _decide(Source(path))
    return chosen.lists_only_present


def _decide(source: Source) -> Format:
    try:
        found = [candidate for candidate in FORMATS.values() if candidate.matches(source)]
    except OSError as error:
        raise source.error(f"cannot be read ({error.strerror or error})") from error
    if len(found) == 1:
        return found[0]
    if found:
        names = " or ".join(f"--format {candidate.name}" for candidate in found)
        raise source.error(f"could be of several formats; say which: {names}")
    raise source.error(f"looks like no label format{_hint(source)}")


def _hint(source: Source) -> str:
    """What might be wrong with a file that no format knows."""
    if source.kind != "text":
        return f"; say which with --format: {', '.join(FORMATS)}"
    header = source.header
    seen = f" (its header is {', '.join(header)[:80]!r}); "
    if header[0] == "" and "image" in header[1:]:
        return seen + "its first column has no name: write it without an index (index=False)"
    if header[0].lower() == "image":
        return seen + "a file with a row a label has the columns image,class,value"
    return seen + "call the first column 'image', or say --format csv if it names the images"


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
    if path.name.lower() in ("metadata.csv", "metadata.parquet"):
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
