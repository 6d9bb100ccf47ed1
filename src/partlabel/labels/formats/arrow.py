"""The ``arrow`` format: the file that ``LabelTable.save`` writes; it keeps everything."""

from collections.abc import Iterable
from pathlib import Path

from partlabel.labels import LabelTable
from partlabel.labels.formats.format import PartsFormat
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated
from partlabel.labels.storage import check, save_parts


class Arrow(PartsFormat):
    """A saved label table. It is memory-mapped, which suits very large tables."""

    name = "arrow"
    is_text = False
    suffixes = (".arrow",)
    holds_origins = True

    def matches(self, source: Source) -> bool:
        """Whether the file starts with Arrow's magic bytes."""
        return source.kind == "arrow"

    def read(self, source: Source) -> Stated:
        """All cells, after a check of the table."""
        table = check(LabelTable.open(source.file), source.path)
        cells = table.cells
        return Stated(
            table.ids,
            table.classes,
            cells.rows,
            cells.columns,
            cells.values,
            cells.details,
            splits=table.splits,
            origins=table.origins,
        )

    def write(self, table: LabelTable, path: Path) -> None:
        """Write the whole table."""
        table.save(path)

    def write_parts(
        self,
        header: LabelTable,
        parts: Iterable[LabelTable],
        path: Path,
        *,
        every_cell: bool = False,
    ) -> None:
        """Write the columns one after the other, and then put them together."""
        save_parts(header, parts, path)
