"""Label tables with unknown entries, and the operations on them. Uses ``base`` and ``images``."""

from partlabel.labels.cells import HUMAN, MODEL, Cells
from partlabel.labels.combine import CONFLICT_RULES, Conflict
from partlabel.labels.merge import merge
from partlabel.labels.names import Names
from partlabel.labels.table import ABSENT, PRESENT, UNKNOWN, LabelTable
from partlabel.labels.ternary import ternary

__all__ = [
    "ABSENT",
    "CONFLICT_RULES",
    "HUMAN",
    "MODEL",
    "PRESENT",
    "UNKNOWN",
    "Cells",
    "Conflict",
    "LabelTable",
    "Names",
    "merge",
    "ternary",
]
