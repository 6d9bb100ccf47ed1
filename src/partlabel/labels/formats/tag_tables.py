"""Text tables with the tags of images: finding the columns, and whether a cell holds a list."""

from dataclasses import dataclass
from functools import cached_property

import pyarrow.compute as pc

from partlabel.labels.formats.delimited import ABSENT_OR_PRESENT, Delimited, read_delimited
from partlabel.labels.formats.source import IMAGE_NAMES, Source, image_column

_ONE = ("tag", "label", "class", "category")
_SEVERAL = ("tags", "labels", "classes", "categories", "keywords")
TAG_NAMES = _ONE + _SEVERAL
"""The column, or the key of a JSON object, that holds tags."""

SEPARATORS = (";", "|", ",")

_MOST_SPELLINGS = 100  # of the words for labels in a column, with blanks around them


@dataclass(frozen=True)
class TagTable:
    """A text table with a column of images and a column of tags.

    Args:
        text: the table.
        image, tag: the positions of these columns.
        split: the position of the column of splits, or None.
        others: the positions of all other columns.
    """

    text: Delimited
    image: int
    tag: int
    split: int | None
    others: list[int]

    @cached_property
    def separator(self) -> str | None:
        """What separates tags in a cell: ``[`` for a JSON list, a character, or None."""
        dictionary = self.text.columns[self.tag].dictionary
        filled = dictionary.filter(pc.match_substring_regex(dictionary, r"\S"))
        if len(filled) and pc.all(pc.match_substring_regex(filled, r"^\s*\[.*\]\s*$")).as_py():
            return "["
        for mark in SEPARATORS:
            if pc.any(pc.match_substring(filled, mark)).as_py():
                return mark
        return None

    @cached_property
    def kinds(self) -> set[str]:
        """The formats that the table may have: ``tags``, ``lists``, or both if it is unclear."""
        header = self.text.header[self.tag].lower()
        repeats = len(self.text.columns[self.image].dictionary) < len(self.text)
        if self.separator is None:
            return {"lists"} if header in _SEVERAL and not repeats else {"tags"}
        if self.separator == "[":
            return {"lists"}
        is_unclear = header == "tag" or (header in _ONE and self.separator == ",")
        return {"tags", "lists"} if repeats or is_unclear else {"lists"}

    @property
    def may_be_wide(self) -> bool:
        """Whether the table may instead have one column per class, with 1 and 0."""
        return self._tag_holds_labels or self._others_hold_labels

    @property
    def is_wide(self) -> bool:
        """Whether the table surely has one column per class: the tags are 1 and 0 too."""
        return self._tag_holds_labels and self._others_hold_labels

    @cached_property
    def _tag_holds_labels(self) -> bool:
        return _holds_labels(self.text, self.tag)

    @cached_property
    def _others_hold_labels(self) -> bool:
        return bool(self.others) and all(_holds_labels(self.text, i) for i in self.others)


def tag_table(source: Source, *, forced: bool = False) -> TagTable | None:
    """The table of tags in a text file, None if it has no such columns.

    Args:
        forced: the user asked for this format, so a file without these columns is an error.
    """
    if source.kind != "text":
        if forced:
            raise source.error("is not a text table; tags have the columns image,tag")
        return None
    header = [name.lower() for name in source.header]
    image = image_column(header)
    tags = [i for i, name in enumerate(header) if name in TAG_NAMES]
    is_long = {"class", "value"} <= set(header)
    if image is None or len(tags) != 1 or (is_long and not forced):
        if forced:
            raise source.error(_missing(header, image, tags), source.line(1))
        return None
    split = header.index("split") if "split" in header else None
    others = [i for i in range(len(header)) if i not in (image, tags[0], split)]
    return TagTable(read_delimited(source), image, tags[0], split, others)


def _missing(header: list[str], image: int | None, tags: list[int]) -> str:
    if image is None:
        return f"no column holds images; call it {', '.join(IMAGE_NAMES[:4])} or similar"
    if not tags:
        return f"no column holds tags; call it {', '.join(_ONE)} or {', '.join(_SEVERAL[:2])}"
    names = ",".join(header[i] for i in tags[1:])
    return f"{len(tags)} columns may hold tags; leave others out with --ignore-columns {names}"


def _holds_labels(text: Delimited, column: int) -> bool:
    """Whether a column has only words for labels, such as 1 and 0."""
    if len(text.columns[column].dictionary) > _MOST_SPELLINGS:
        return False
    return all(value.strip() in ABSENT_OR_PRESENT for value in text.values(column))
