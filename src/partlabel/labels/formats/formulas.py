"""Names that a spreadsheet would run as formulas, and the apostrophe that prevents it.

A spreadsheet does not run a name that has an apostrophe before ``=``, ``+``, ``-``, ``@``, a tab or
a line end. The readers of text tables take it off again. A name that has such an apostrophe itself
gets one more in every text table, so that all names are read as they were.

https://owasp.org/www-community/attacks/CSV_Injection
"""

import re

import pyarrow as pa
import pyarrow.compute as pc

from partlabel.labels import LabelTable, Names

_STARTS = "[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"  # the last four are the wide forms of = + - @
_FORMULA = f"^('*{_STARTS})"
_QUOTED = f"^'('*{_STARTS})"


def quoted(name: str, *, excel_safe: bool) -> str:
    """A name as it is written to a text table.

    Args:
        excel_safe: whether formulas get an apostrophe; otherwise only names that have one already.

    >>> quoted("=1+1", excel_safe=True), quoted("=1+1", excel_safe=False)
    ("'=1+1", '=1+1')
    >>> quoted("'=1+1", excel_safe=False), quoted("a=b", excel_safe=True)
    ("''=1+1", 'a=b')
    """
    return re.sub(_FORMULA if excel_safe else f"(?='){_FORMULA}", r"'\1", name)


def quoted_table(table: LabelTable, *, excel_safe: bool) -> LabelTable:
    """A table whose names are as they are written to a text table."""

    def names(plain: Names) -> Names:
        array = plain.plain()
        affected = pc.match_substring_regex(array, _FORMULA if excel_safe else _QUOTED)
        if not pc.any(affected).as_py():
            return plain
        mark, nothing = (pa.scalar(text, array.type) for text in ("'", ""))
        return Names(pc.if_else(affected, pc.binary_join_element_wise(mark, array, nothing), array))

    splits = None if table.splits is None else names(table.splits)
    return LabelTable.from_cells(
        names(table.ids),
        names(table.classes),
        table.cells,
        splits,
        names(Names(table.origins)),
        check=False,
    )


def unquoted(name: str) -> str:
    """A name in a text table, without the apostrophe of :func:`quoted`.

    >>> unquoted("'=1+1"), unquoted("''=1+1"), unquoted("'quoted'")
    ('=1+1', "'=1+1", "'quoted'")
    """
    return re.sub(_QUOTED, r"\1", name)


def unquoted_column(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """A column of a text table, without the apostrophes of :func:`quoted`."""
    values = column.dictionary
    if not pc.any(pc.starts_with(values, "'")).as_py():  # almost always
        return column
    names = pa.array([unquoted(name) for name in values.to_pylist()], values.type)
    if names.equals(values):
        return column
    # two names may have become one, so the dictionary is built again
    return column.from_arrays(column.indices, names).dictionary_decode().dictionary_encode()
