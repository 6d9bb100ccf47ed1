"""Multi-label image classification when most labels are unknown.

>>> import partlabel
>>> table = partlabel.LabelTable(["a.jpg"], ["cat", "dog"], [[partlabel.PRESENT, 0]])
>>> partlabel.simulate.single_positive(table, seed=0).known
0.5
"""

from partlabel import formats, labels, metrics, scenes, simulate
from partlabel.formats import read_labels, write_labels
from partlabel.labels import ABSENT, PRESENT, UNKNOWN, LabelTable
from partlabel.version import VERSION

__version__ = VERSION

__all__ = [
    "ABSENT",
    "PRESENT",
    "UNKNOWN",
    "LabelTable",
    "__version__",
    "formats",
    "labels",
    "metrics",
    "read_labels",
    "scenes",
    "simulate",
    "write_labels",
]
