"""The ``cvat`` format: the XML file of "CVAT for images", with tags and shapes per image."""

from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from partlabel.labels import PRESENT, LabelTable, Names
from partlabel.labels.formats.format import Format, drops_absent, drops_scores, drops_splits
from partlabel.labels.formats.packing import packed_file
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated, only_once
from partlabel.labels.formats.xml_files import parse_xml

_ROOT = "annotations"


class Cvat(Format):
    """A class is present in an image if it has a tag or a shape there.

    The classes are those of the task, also those without any tag. Images in which nothing was
    annotated are in the table too.
    """

    name = "cvat"
    suffixes = (".xml",)
    lists_only_present = True

    def matches(self, source: Source) -> bool:
        """Whether the root of the XML file is ``<annotations>``."""
        return source.kind == "xml" and f"<{_ROOT}".encode() in source.head

    def read(self, source: Source) -> Stated:
        """The labels of the tags and shapes of each image."""
        root = _parse(source)
        if root.find("track") is not None:
            raise source.error(
                "has tracks of a video; export the task as 'CVAT for images', which lists frames"
            )
        images = root.findall("image")
        names = [
            _attribute(source, image, "name", f"image {i + 1:,}") for i, image in enumerate(images)
        ]
        only_once(source, "image", names)
        statements = []
        for row, (name, image) in enumerate(zip(names, images, strict=True)):
            for item in image:
                label = _attribute(source, item, "label", f"image '{name}', <{item.tag}>").strip()
                if not label:
                    raise source.error("a class needs a name", f"image '{name}', <{item.tag}>")
                statements.append((row, label))
        declared = [(element.text or "").strip() for element in root.iterfind("meta//label/name")]
        classes = list(dict.fromkeys(name for name in declared if name))
        classes += sorted({label for _, label in statements} - set(classes))
        columns = {name: column for column, name in enumerate(classes)}
        return Stated(
            Names(names),
            Names(classes),
            np.array([row for row, _ in statements], dtype=np.int64),
            np.array([columns[label] for _, label in statements], dtype=np.int64),
            np.full(len(statements), PRESENT, dtype=np.int8),
            where=lambda records: [f"image '{names[statements[i][0]]}'" for i in records],
        )

    def write(self, table: LabelTable, path: Path) -> None:
        """Write one tag per present class; all classes are labels of the task."""
        classes, present = list(table.classes), table.cells.where(table.cells.values == PRESENT)
        with packed_file(path) as stream:
            labels = "".join(
                f"<label><name>{escape(name)}</name><type>tag</type></label>\n" for name in classes
            )
            start = f"<{_ROOT}>\n<version>1.1</version>\n<meta><task><labels>\n{labels}"
            stream.write(f'<?xml version="1.0" encoding="utf-8"?>\n{start}'.encode())
            stream.write(b"</labels></task></meta>\n")
            for row, name in enumerate(table.ids):
                columns = present.columns[present.starts[row] : present.starts[row + 1]]
                tags = "".join(
                    f'<tag label={quoteattr(classes[column])} source="manual"></tag>'
                    for column in columns
                )
                line = f'<image id="{row}" name={quoteattr(name)}>{tags}</image>\n'
                stream.write(line.encode())
            stream.write(f"</{_ROOT}>\n".encode())

    def drops(self, table: LabelTable) -> list[str]:
        """Absent labels, scores and splits."""
        return drops_absent(table) + drops_scores(table) + drops_splits(table)


def _parse(source: Source) -> ElementTree.Element:
    if source.kind == "folder":
        raise source.error("is a folder; give the annotations.xml in it")
    return parse_xml(source.file.read_bytes(), source.path, "CVAT file", _ROOT)


def _attribute(source: Source, element: ElementTree.Element, name: str, where: str) -> str:
    value = element.get(name)
    if not value:
        raise source.error(f"has no attribute '{name}'", where)
    return value
