"""The stored cells of a label table, class by class."""

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import LabelTable


class CellsByClass:
    """Where the cells of each class are among all cells of a table; sorted once."""

    def __init__(self, table: LabelTable) -> None:
        columns = np.asarray(table.cells.columns)
        self.order = np.argsort(columns, kind="stable")
        self.starts = np.searchsorted(columns[self.order], np.arange(len(table.classes) + 1))
        self.rows = table.cells.rows

    def positions(self, column: int) -> NDArray[np.int64]:
        """The positions of the cells of a class, among all cells."""
        return self.order[self.starts[column] : self.starts[column + 1]]
