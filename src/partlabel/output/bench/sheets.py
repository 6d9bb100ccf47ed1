"""A table of words, and how it is written down: Markdown, LaTeX, or on a terminal."""

from dataclasses import dataclass, field

from rich.markup import escape
from rich.table import Table

from partlabel.output.display import grid

_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
}  # fmt: skip


@dataclass(frozen=True)
class Sheet:
    """Words in rows and columns.

    Args:
        header: the words above the columns.
        rows: one word for each column, the first is the row's name.
        best: the cells (row, column) to be set in bold.
    """

    header: list[str]
    rows: list[list[str]]
    best: set[tuple[int, int]] = field(default_factory=set)

    def bold(self, row: int) -> set[int]:
        """The columns of a row that are best."""
        return {column for at, column in self.best if at == row}


def markdown(sheet: Sheet) -> str:
    """As people paste it into a page.

    >>> print(markdown(Sheet(["mAP", "10%"], [["AN", "50.0"], ["EM", "60.0"]], {(1, 1)})), end="")
    | mAP | 10% |
    | --- | --- |
    | AN | 50.0 |
    | EM | **60.0** |
    """

    def line(words: list[str], bold: set[int]) -> str:
        plain = [word.replace("|", "\\|").replace("\n", " ") for word in words]
        shown = (f"**{word}**" if j in bold else word for j, word in enumerate(plain))
        return f"| {' | '.join(shown)} |\n"

    head = line(sheet.header, set()) + line(["---"] * len(sheet.header), set())
    return head + "".join(line(row, sheet.bold(i)) for i, row in enumerate(sheet.rows))


def latex(sheet: Sheet) -> str:
    r"""For a paper, with the package booktabs.

    >>> print(latex(Sheet(["mAP", "10%"], [["AN", "50.0 ± 0.1"]], {(0, 1)})), end="")
    \begin{tabular}{lc}
    \toprule
    mAP & 10\% \\
    \midrule
    AN & \textbf{50.0 $\pm$ 0.1} \\
    \bottomrule
    \end{tabular}
    """

    def line(words: list[str], bold: set[int]) -> str:
        plain = ["".join(_TEX.get(letter, letter) for letter in word) for word in words]
        shown = (f"\\textbf{{{w}}}" if j in bold else w for j, w in enumerate(plain))
        return " & ".join(shown) + r" \\"

    body = [line(row, sheet.bold(number)) for number, row in enumerate(sheet.rows)]
    places = "l" + "c" * (len(sheet.header) - 1)
    head = [rf"\begin{{tabular}}{{{places}}}", r"\toprule", line(sheet.header, set()), r"\midrule"]
    return "\n".join([*head, *body, r"\bottomrule", r"\end{tabular}"]) + "\n"


def on_terminal(sheet: Sheet) -> Table:
    """To be printed on a console."""
    rows = [
        [
            f"[bold]{escape(word)}[/]" if (i, j) in sheet.best else escape(word)
            for j, word in enumerate(row)
        ]
        for i, row in enumerate(sheet.rows)
    ]
    return grid([(escape(name), j > 0) for j, name in enumerate(sheet.header)], rows)
