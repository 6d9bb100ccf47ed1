"""Which classes a text mentions, and which words are frequent in texts."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from scipy.sparse import csr_array

from partlabel.labels import PRESENT, LabelTable

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
_ENDINGS = ("", "s", "es")


def words(text: str) -> list[str]:
    """The words of a text in lower case.

    >>> words("A man's traffic_light, twice.")
    ['a', "man's", 'traffic', 'light', 'twice']
    """
    return _WORD.findall(text.lower())


def mentions(texts: Iterable[str], classes: Sequence[str], *, plurals: bool = True) -> LabelTable:
    """One row per text: present for the classes that it mentions, unknown for all others.

    A class is mentioned if the words of its name follow each other in the text.

    Args:
        texts: one string each.
        classes: [C] names.
        plurals: whether the last word may also end in -s or -es, if that is no class of its own.

    >>> mentions(["Two dogs near a traffic light"], ["dog", "traffic light", "cat"]).dense()
    array([[1, 1, 0]], dtype=int8)
    """
    column: dict[tuple[str, ...], int] = {}
    for ending in _ENDINGS if plurals else _ENDINGS[:1]:
        for number, name in enumerate(classes):
            parts = words(name)
            if parts:
                column.setdefault((*parts[:-1], parts[-1] + ending), number)
    lengths = sorted({len(parts) for parts in column})
    starts, columns = [0], []
    for text in texts:
        found = words(text)
        own = {
            column[run]
            for size in lengths
            for at in range(len(found) - size + 1)
            if (run := tuple(found[at : at + size])) in column
        }
        columns += sorted(own)
        starts.append(len(columns))
    shape = (len(starts) - 1, len(classes))
    matrix = csr_array(([PRESENT] * len(columns), columns, starts), shape=shape, dtype="int8")
    return LabelTable([str(number) for number in range(shape[0])], list(classes), matrix)


def frequent_words(texts: Iterable[str], number: int, leave_out: Iterable[str] = ()) -> list[str]:
    """The words that occur in the most texts, the most frequent first.

    >>> frequent_words(["a red bus", "a bus, a red bus", "a cat"], 2, leave_out=["a"])
    ['bus', 'red']
    """
    counts = Counter(word for text in texts for word in set(words(text)))
    for word in leave_out:
        counts.pop(word, None)
    return sorted(counts, key=lambda word: (-counts[word], word))[:number]
