"""The ``arrow`` format: what ``LabelTable.save`` writes, the one that loses nothing."""

from pathlib import Path

from partlabel.labels import LabelTable
from partlabel.labels.formats.format import Format
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated
from partlabel.labels.storage import check


class Arrow(Format):
    """A saved label table; opened without reading it, and so the one for very large tables."""

    name = "arrow"
    suffixes = (".arrow",)

    def matches(self, source: Source) -> bool:
        """Arrow's own first bytes."""
        return source.kind == "arrow"

    def read(self, source: Source) -> Stated:
        """All cells, checked."""
        table = check(LabelTable.open(source.file), source.path)
        cells = table.cells
        return Stated(
            table.ids,
            table.classes,
            cells.rows,
            cells.columns,
            cells.values,
            cells.scores,
            cells.sources,
            splits=table.splits,
        )

    def write(self, table: LabelTable, path: Path) -> None:
        """Everything."""
        table.save(path)
