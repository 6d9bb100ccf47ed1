"""Metrics, calibration and guarantees: functions of scores and labels that need no model.

Uses ``base``, ``images`` and ``labels``.
"""

from partlabel.metrics.evaluation import (
    Evaluation,
    average_precision,
    by_annotations,
    evaluate,
    evaluate_cells,
)
from partlabel.metrics.known_cells import KnownCells, known_cells
from partlabel.metrics.top_recall import top_recall

__all__ = [
    "Evaluation",
    "KnownCells",
    "average_precision",
    "by_annotations",
    "evaluate",
    "evaluate_cells",
    "known_cells",
    "top_recall",
]
