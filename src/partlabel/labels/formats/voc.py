"""Pascal VOC: a folder with an XML file per image."""

from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import numpy as np

from partlabel.base.errors import FileError, InputError
from partlabel.base.files import atomic_folder
from partlabel.labels import PRESENT, LabelTable, Names
from partlabel.labels.formats.format import (
    Format,
    drops_absent,
    drops_order,
    drops_scores,
    drops_silent,
)
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated


class Voc(Format):
    """A class is present where an object of it is marked that is not difficult.

    Reads a folder of XML files, or one in the layout of the challenge (``Annotations/`` and, for
    the splits, ``ImageSets/Main/NAME.txt``). A class with difficult objects only is unknown in that
    image, even with ``unlisted="absent"``.
    """

    name = "voc"
    lists_only_present = True

    def matches(self, source: Source) -> bool:
        """A folder with XML files."""
        return source.kind == "folder" and bool(_annotations(source))

    def read(self, source: Source) -> Stated:
        """An image is called by the file's ``<filename>``."""
        if source.kind != "folder":
            raise source.error("the voc format is a folder of XML files; name the folder")
        files = _annotations(source)
        if not files:
            raise source.error("no XML file in the folder (or in its subfolder Annotations)")
        names: dict[str, Path] = {}
        cells: dict[tuple[int, str], int] = {}
        for row, path in enumerate(files):
            name, objects = _read_xml(path)
            if name in names:
                raise FileError(path, f"describes image '{name}' like {names[name].name}")
            names[name] = path
            for label, difficult in objects:
                cells[row, label] = max(cells.get((row, label), 0), 0 if difficult else PRESENT)
        classes = sorted({label for _, label in cells})
        columns = {label: column for column, label in enumerate(classes)}
        return Stated(
            Names(list(names)),
            Names(classes),
            np.array([row for row, _ in cells], dtype=np.int64),
            np.array([columns[label] for _, label in cells], dtype=np.int64),
            np.array(list(cells.values()), dtype=np.int8),
            splits=_read_splits(source, files),
        )

    def write(self, table: LabelTable, path: Path) -> None:
        """The challenge's layout; objects have no box."""
        classes, present = list(table.classes), table.cells.where(table.cells.values == PRESENT)
        stems, splits = _stems(table), list(table.splits or [])
        names = sorted(set(splits) - {""})
        if any(Path(name).name != name for name in names):
            raise InputError(f"a split of the voc format is a file; {names} are no file names")
        with atomic_folder(path) as folder:
            (folder / "Annotations").mkdir()
            for row, name in enumerate(table.ids):
                labels = present.columns[present.starts[row] : present.starts[row + 1]]
                objects = "".join(
                    f"  <object><name>{escape(classes[column])}</name>"
                    "<difficult>0</difficult></object>\n"
                    for column in labels
                )
                text = (
                    f"<annotation>\n  <filename>{escape(name)}</filename>\n{objects}</annotation>\n"
                )
                file = folder / "Annotations" / f"{stems[row]}.xml"
                file.write_text(text, encoding="utf-8")
            sets = folder / "ImageSets" / "Main"
            for name in names:
                sets.mkdir(parents=True, exist_ok=True)
                lines = [s for s, split in zip(stems, splits, strict=True) if split == name]
                (sets / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def drops(self, table: LabelTable) -> list[str]:
        """Classes are named where they are present."""
        present = table.with_cells(table.cells.where(table.cells.values == PRESENT))
        lost = drops_absent(table) + drops_scores(table) + drops_silent(present, images=False)
        files = [f"{stem}.xml" for stem in _stems(table)]
        if files != sorted(files):  # the order in which they will be read
            lost.append("the order of the images")
        return lost + drops_order(table)


def _annotations(source: Source) -> list[Path]:
    folder = source.path / "Annotations"
    folder = folder if folder.is_dir() else source.path
    return sorted(folder.glob("*.xml"))


def _read_xml(path: Path) -> tuple[str, list[tuple[str, bool]]]:
    """The image's name, and class and difficulty of each object."""
    try:
        text = path.read_bytes()
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
            raise FileError(path, "declares entities or a document type; VOC files have none")
        root = ElementTree.fromstring(text)
    except FileError:
        raise
    except (ElementTree.ParseError, ValueError, LookupError, OSError) as error:
        raise FileError(path, f"not a readable XML file ({error})") from error
    if root.tag != "annotation":
        raise FileError(path, f"starts with <{root.tag}>; a VOC file starts with <annotation>")
    objects = []
    for number, item in enumerate(root.iter("object"), start=1):
        label = (item.findtext("name") or "").strip()
        if not label:
            raise FileError(path, f"object {number} has no <name>")
        objects.append((label, (item.findtext("difficult") or "0").strip() == "1"))
    return root.findtext("filename") or f"{path.stem}.jpg", objects


def _read_splits(source: Source, files: list[Path]) -> list[str] | None:
    """The split of each image; a list is one unless others hold all of it, as with trainval."""
    rows = {path.stem: row for row, path in enumerate(files)}
    splits = [""] * len(files)
    folder = source.path / "ImageSets" / "Main"
    lists: list[tuple[str, list[int]]] = []
    for path in folder.glob("*.txt"):
        stems = path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else []
        lists.append((path.stem, [rows[stem] for stem in stems if stem in rows]))
    usual = ("train", "val", "test")
    for name, members in sorted(lists, key=lambda one: (one[0] not in usual, len(one[1]), one[0])):
        other = [row for row in members if splits[row]]
        if other and len(other) < len(members):
            stem, both = files[other[0]].stem, f"{splits[other[0]]}.txt and {name}.txt"
            raise FileError(folder, f"image '{stem}' is in {both}; take one of the lists away")
        if not other:
            for row in members:
                splits[row] = name
    return splits if any(splits) else None


def _stems(table: LabelTable) -> list[str]:
    """A file name per image that is unique and stays inside the folder."""
    plain = [Path(name).stem for name in table.ids]
    if len(set(plain)) == len(plain) and all(plain):
        return plain
    return [f"{row:06d}" for row in range(len(table))]
