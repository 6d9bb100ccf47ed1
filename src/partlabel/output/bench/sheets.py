"""A table with formatted cells, and its output as Markdown, as LaTeX and in a terminal."""

from dataclasses import dataclass, field

from rich.markup import escape
from rich.table import Table

from partlabel.output.display import grid
from partlabel.output.markup import escape_markdown

# After the end of a row, LaTeX reads [ and * as arguments: so they are in braces.
_TEX = {
    "[": "{[}", "*": "{*}", "<": r"\textless{}", ">": r"\textgreater{}", "\n": " ", "\r": " ",
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
}  # fmt: skip


@dataclass(frozen=True)
class Sheet:
    """A table whose cells are text.

    Args:
        header: the titles of the columns.
        rows: one text per column; the first is the name of the row.
        best: the cells (row, column) to print in bold.
    """

    header: list[str]
    rows: list[list[str]]
    best: set[tuple[int, int]] = field(default_factory=set)

    def bold(self, row: int) -> set[int]:
        """The columns of a row that are printed in bold."""
        return {column for best_row, column in self.best if best_row == row}


def markdown(sheet: Sheet) -> str:
    """The table in Markdown.

    >>> print(markdown(Sheet(["mAP", "10%"], [["AN", "50.0"], ["EM", "60.0"]], {(1, 1)})), end="")
    | mAP | 10% |
    | --- | --- |
    | AN | 50.0 |
    | EM | **60.0** |
    """

    def line(texts: list[str], bold: set[int]) -> str:
        escaped = [escape_markdown(text) for text in texts]
        cells = [f"**{text}**" if j in bold else text for j, text in enumerate(escaped)]
        return f"| {' | '.join(cells)} |\n"

    head = line(sheet.header, set()) + line(["---"] * len(sheet.header), set())
    return head + "".join(line(row, sheet.bold(i)) for i, row in enumerate(sheet.rows))


def latex(sheet: Sheet) -> str:
    r"""The table in LaTeX; it needs the package booktabs.

    >>> print(latex(Sheet(["mAP", "10%"], [["AN", "50.0 ± 0.1"]], {(0, 1)})), end="")
    \begin{tabular}{lc}
    \toprule
    mAP & 10\% \\
    \midrule
    AN & \textbf{50.0 $\pm$ 0.1} \\
    \bottomrule
    \end{tabular}
    """

    def line(texts: list[str], bold: set[int]) -> str:
        escaped = ["".join(_TEX.get(letter, letter) for letter in text) for text in texts]
        cells = [f"\\textbf{{{text}}}" if j in bold else text for j, text in enumerate(escaped)]
        return " & ".join(cells) + r" \\"

    alignment = "l" + "c" * (len(sheet.header) - 1)
    head = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", line(sheet.header, set())]
    body = [line(row, sheet.bold(i)) for i, row in enumerate(sheet.rows)]
    return "\n".join([*head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]) + "\n"


def on_terminal(sheet: Sheet) -> Table:
    """The table for a terminal."""
    rows = [
        [
            f"[bold]{escape(text)}[/]" if (i, j) in sheet.best else escape(text)
            for j, text in enumerate(row)
        ]
        for i, row in enumerate(sheet.rows)
    ]
    return grid([(escape(title), j > 0) for j, title in enumerate(sheet.header)], rows)
