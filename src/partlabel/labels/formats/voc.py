"""The ``voc`` format (Pascal VOC): a folder with one XML file per image."""

from pathlib import Path
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
    drops_without_entries,
)
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated
from partlabel.labels.formats.xml_files import parse_xml


class Voc(Format):
    """A class is present in an image if one of its objects there is not marked as difficult.

    The folder holds the XML files, or has the layout of the challenge: ``Annotations/`` for the XML
    files and ``ImageSets/Main/NAME.txt`` for the splits. A class whose objects are all difficult is
    unknown in that image, even with ``unlisted="absent"``.
    """

    name = "voc"
    is_text = False
    lists_only_present = True

    def matches(self, source: Source) -> bool:
        """Whether this is a folder with XML files."""
        return source.kind == "folder" and bool(_xml_files(source))

    def read(self, source: Source) -> Stated:
        """The classes of the objects in each image; its name is the ``<filename>``."""
        if source.kind != "folder":
            raise source.error("the voc format is a folder of XML files; give the folder")
        files = _xml_files(source)
        if not files:
            raise source.error("no XML file in the folder or in its subfolder Annotations")
        path_of_image: dict[str, Path] = {}
        cells: dict[tuple[int, str], int] = {}
        for row, path in enumerate(files):
            name, objects = _read_xml(path)
            if name in path_of_image:
                first = path_of_image[name].name
                raise FileError(path, f"describes image '{name}', as {first} already does")
            path_of_image[name] = path
            for label, difficult in objects:
                cells[row, label] = max(cells.get((row, label), 0), 0 if difficult else PRESENT)
        classes = sorted({label for _, label in cells})
        columns = {label: column for column, label in enumerate(classes)}
        return Stated(
            Names(list(path_of_image)),
            Names(classes),
            np.array([row for row, _ in cells], dtype=np.int64),
            np.array([columns[label] for _, label in cells], dtype=np.int64),
            np.array(list(cells.values()), dtype=np.int8),
            splits=_read_splits(source, files),
        )

    def write(self, table: LabelTable, path: Path) -> None:
        """Write the layout of the challenge; objects have no box."""
        classes, present = list(table.classes), table.cells.where(table.cells.values == PRESENT)
        stems, splits = _stems(table), list(table.splits or [])
        split_names = sorted(set(splits) - {""})
        for split_name in split_names:
            if Path(split_name).name != split_name:
                raise InputError(
                    f"the split '{split_name}' cannot be written in the voc format, because a file "
                    "cannot have this name"
                )
        with atomic_folder(path) as folder:
            (folder / "Annotations").mkdir()
            for row, name in enumerate(table.ids):
                columns = present.columns[present.starts[row] : present.starts[row + 1]]
                text = _annotation(name, [classes[column] for column in columns])
                file = folder / "Annotations" / f"{stems[row]}.xml"
                file.write_text(text, encoding="utf-8")
            sets = folder / "ImageSets" / "Main"
            for split_name in split_names:
                sets.mkdir(parents=True, exist_ok=True)
                members = [s for s, split in zip(stems, splits, strict=True) if split == split_name]
                text = "\n".join(members) + "\n"
                (sets / f"{split_name}.txt").write_text(text, encoding="utf-8")

    def drops(self, table: LabelTable) -> list[str]:
        """Absent labels, scores, classes that are never present, and the order of the classes."""
        present = table.with_cells(table.cells.where(table.cells.values == PRESENT))
        lost = drops_absent(table) + drops_scores(table)
        lost += drops_without_entries(present, images=False)
        files = [f"{stem}.xml" for stem in _stems(table)]
        if files != sorted(files):  # the reader sorts the files by name
            lost.append("the order of the images")
        return lost + drops_order(table)


def _xml_files(source: Source) -> list[Path]:
    folder = source.path / "Annotations"
    folder = folder if folder.is_dir() else source.path
    return sorted(path for path in folder.glob("*.xml") if path.is_file())


def _annotation(image: str, labels: list[str]) -> str:
    """The XML for an image with one object per label."""
    objects = "".join(
        f"  <object><name>{escape(label)}</name><difficult>0</difficult></object>\n"
        for label in labels
    )
    return f"<annotation>\n  <filename>{escape(image)}</filename>\n{objects}</annotation>\n"


def _read_xml(path: Path) -> tuple[str, list[tuple[str, bool]]]:
    """The name of the image, and for each object its class and whether it is difficult."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(path, f"not a readable XML file ({error})") from error
    root = parse_xml(content, path, "VOC file", "annotation")
    objects = []
    for number, item in enumerate(root.iter("object"), start=1):
        label = (item.findtext("name") or "").strip()
        if not label:
            raise FileError(path, f"object {number} has no <name>")
        objects.append((label, (item.findtext("difficult") or "0").strip() == "1"))
    return root.findtext("filename") or f"{path.stem}.jpg", objects


def _read_splits(source: Source, files: list[Path]) -> list[str] | None:
    """The split of each image, from the lists in ``ImageSets/Main``.

    A list whose images are all in other lists, such as trainval, is not a split.
    """
    rows = {path.stem: row for row, path in enumerate(files)}
    splits = [""] * len(files)
    folder = source.path / "ImageSets" / "Main"
    lists: list[tuple[str, list[int]]] = []
    for path in folder.glob("*.txt"):
        stems = path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else []
        lists.append((path.stem, [rows[stem] for stem in stems if stem in rows]))

    def priority(item: tuple[str, list[int]]) -> tuple[bool, int, str]:
        name, members = item
        return name not in ("train", "val", "test"), len(members), name

    for name, members in sorted(lists, key=priority):
        taken = [row for row in members if splits[row]]
        if taken and len(taken) < len(members):
            stem, both = files[taken[0]].stem, f"{splits[taken[0]]}.txt and {name}.txt"
            raise FileError(folder, f"image '{stem}' is in {both}; remove one of the lists")
        if not taken:
            for row in members:
                splits[row] = name
    return splits if any(splits) else None


def _stems(table: LabelTable) -> list[str]:
    """A unique file name per image, without suffix and without folders."""
    plain = [Path(name).stem for name in table.ids]
    if len(set(plain)) == len(plain) and all(plain):
        return plain
    return [f"{row:06d}" for row in range(len(table))]
