"""Label files that are written from parts of a table, which need not be in memory."""

from collections.abc import Iterable
from pathlib import Path

from partlabel.labels import LabelTable
from partlabel.labels.formats import PathLike, target_format
from partlabel.labels.formats.format import PartsFormat
from partlabel.labels.formats.formulas import quoted_table


def write_label_parts(
    header: LabelTable,
    parts: Iterable[LabelTable],
    path: PathLike,
    format: str | None = None,
    *,
    excel_safe: bool = False,
    every_cell: bool = False,
) -> bool:
    """Write a label file from parts of consecutive images, if its format allows it.

    Args:
        header, parts, every_cell: as in :meth:`PartsFormat.write_parts`.
        path, format, excel_safe: as in :func:`write_labels`.

    Returns:
        Whether it was written. If not, no part was looked at.
    """
    path = Path(path)
    chosen = target_format(path, format)
    if not isinstance(chosen, PartsFormat) or chosen.losses(header):
        return False
    if chosen.writes_text_table(path):
        header = quoted_table(header, excel_safe=excel_safe)
        parts = (quoted_table(part, excel_safe=excel_safe) for part in parts)
    chosen.write_parts(header, parts, path, every_cell=every_cell)
    return True
