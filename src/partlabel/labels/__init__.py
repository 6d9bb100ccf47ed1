"""Label tables with unknown entries, and the operations on them. Uses ``base`` and ``images``."""

from partlabel.labels.cells import (
    CHOSEN,
    CONFIRMED,
    HUMAN,
    MODEL,
    NOT_ASKED,
    RANDOM,
    Cells,
    Details,
)
from partlabel.labels.combine import CONFLICT_RULES, Conflict
from partlabel.labels.merge import merge
from partlabel.labels.names import Names
from partlabel.labels.table import ABSENT, PRESENT, UNKNOWN, LabelTable
from partlabel.labels.ternary import ternary

__all__ = [
    "ABSENT",
    "CHOSEN",
    "CONFIRMED",
    "CONFLICT_RULES",
    "HUMAN",
    "MODEL",
    "NOT_ASKED",
    "PRESENT",
    "RANDOM",
    "UNKNOWN",
    "Cells",
    "Conflict",
    "Details",
    "LabelTable",
    "Names",
    "merge",
    "ternary",
]
