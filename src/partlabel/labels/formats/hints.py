"""What to do about a text file that matches no label format."""

from partlabel.images.decoding import SUFFIXES
from partlabel.labels.formats.reading_options import quote_names
from partlabel.labels.formats.source import Source, image_column
from partlabel.labels.formats.tag_tables import TAG_NAMES
from partlabel.labels.formats.wide import first_words, holds_labels

_ENDINGS = tuple(SUFFIXES)


def hint(source: Source) -> str:
    """A guess at the problem, from the header and the first records; the end of a sentence."""
    header = source.header
    about = f" (its header is {', '.join(header)[:80]!r}); "
    image = image_column(header)
    if any(name.lower().endswith(_ENDINGS) for name in header):
        return about + "it seems to have no header; add one as its first line, such as image,tag"
    if header[0] == "" and image is not None:
        return about + "its first column has no name; write it without an index (index=False)"
    words = first_words(source)
    others = [name for name in dict.fromkeys(header) if not holds_labels(words[name])]
    if image == 0:
        return about + (
            "no other column holds labels (1 and 0, or yes and no); call a column of tags 'tag'"
        )
    if image is not None:
        before = header[:image]
        if set(before) <= set(others):
            return about + (
                f"the column '{header[image]}' must be the first: leave out those before it with "
                f"--ignore-columns {quote_names(before)}"
            )
        return about + f"the column '{header[image]}' must be the first; move it there"
    named = [name for name in others if any(w.lower().endswith(_ENDINGS) for w in words[name])]
    return about + _without_image_column(header, others, named)


def _without_image_column(header: list[str], others: list[str], named: list[str]) -> str:
    """The hint for a table without a column whose name suggests images.

    Args:
        header: all columns.
        others: the columns that hold something other than labels.
        named: those of them with names of image files.
    """
    first, *rest = header
    if len(named) == 1 and named[0] != first:
        return f"rename the column '{named[0]}', which seems to hold the images, to 'image'"
    advice = f"if '{first}' is the image, rename it to 'image'"
    ignored = [name for name in rest if name in others]
    if any(name.lower() in TAG_NAMES for name in rest):
        return advice
    if len(ignored) == len(rest):
        return f"{advice}, and call a column of tags 'tag'"
    more = f" --ignore-columns {quote_names(ignored)}" if ignored else ""
    return f"{advice}, or use --format csv{more}"
