"""Tables of text, for notebooks and for plain output."""

from collections.abc import Sequence
from html import escape


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as HTML; all text is escaped, and all columns but the first align right.

    >>> html_table(["class", "AP"], [["a<b", "50.0"]]).count("<td")
    2
    """

    def line(tag: str, texts: Sequence[str]) -> str:
        sides = ["left", *["right"] * (len(texts) - 1)]
        cells = (
            f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'
            for side, text in zip(sides, texts, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', header)}</thead><tbody>{body}</tbody></table>"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as plain text; all columns but the first align right.

    >>> print(text_table(["class", "AP"], [["cat", "50.0"], ["zebra", "7.5"]]))
    class    AP
    cat    50.0
    zebra   7.5
    """
    lines = [header, *rows]
    widths = [max(len(line[j]) for line in lines) for j in range(len(header))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )
