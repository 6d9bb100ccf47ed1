"""Metrics, calibration and guarantees: functions of scores and labels that need no model.

Uses ``base``, ``images`` and ``labels``.
"""

from partlabel.metrics.evaluation import (
    Evaluation,
    average_precision,
    by_annotations,
    evaluate,
    top_recall,
)

__all__ = ["Evaluation", "average_precision", "by_annotations", "evaluate", "top_recall"]
