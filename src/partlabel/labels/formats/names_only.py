"""The ``names`` format: plain text with the name of an image per line, and no labels."""

from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np

from partlabel.base.errors import count
from partlabel.images.decoding import SUFFIXES
from partlabel.labels import LabelTable, Names
from partlabel.labels.formats.format import Format, drops_scores, drops_splits
from partlabel.labels.formats.packing import packed_file
from partlabel.labels.formats.source import IMAGE_NAMES, Source
from partlabel.labels.formats.stated import Notes, Stated

_SAMPLED_LINES = 50


class NameList(Format):
    """One name per line. The table has these images and no classes.

    Merged with other files, it adds images whose labels are all unknown.
    """

    name = "names"
    suffixes = (".txt",)

    def matches(self, source: Source) -> bool:
        """Whether the first lines end like image files; the very first may be a header."""
        if source.kind != "text":
            return False
        lines = [line.strip().lower() for line in islice(source.lines(), _SAMPLED_LINES)]
        lines = [line for line in lines if line]
        lines = lines[1:] if lines and lines[0] in IMAGE_NAMES else lines
        return bool(lines) and all(line.endswith(tuple(SUFFIXES)) for line in lines)

    def read(self, source: Source) -> Stated:
        """The images; an image that is listed twice is noted."""
        if source.kind == "folder":
            raise source.error("is a folder; the names format is a text file with a name per line")
        source.text  # noqa: B018  # raises an error for a file that is not text
        lines = [line.rstrip("\r\n") for line in source.lines()]
        names = [line for line in lines if line]
        if names and names[0].strip().lower() in IMAGE_NAMES:
            names = names[1:]
        unique = dict.fromkeys(names)
        nothing = np.zeros(0, dtype=np.int64)
        notes = Notes()
        if len(unique) < len(names):
            again = [name for name, times in Counter(names).items() if times > 1]
            notes.repeated = again
        values = np.zeros(0, dtype=np.int8)
        return Stated(Names(list(unique)), Names([]), nothing, nothing, values, notes=notes)

    def write(self, table: LabelTable, path: Path) -> None:
        """Write the names; a header too, if the first name could be taken for one."""
        names = list(table.ids)
        looks_like_header = bool(names) and (
            names[0].strip().lower() in IMAGE_NAMES or names[0].startswith("\ufeff")
        )
        with packed_file(path) as stream:
            for name in ["image", *names] if looks_like_header or not names else names:
                stream.write(name.encode() + b"\n")

    def drops(self, table: LabelTable) -> list[str]:
        """All labels, the classes, scores and splits."""
        known = int(np.count_nonzero(table.cells.values))
        lost = [count(known, "label")] if known else []
        if len(table.classes):
            lost.append(count(len(table.classes), "class", "classes"))
        return lost + drops_scores(table) + drops_splits(table)
