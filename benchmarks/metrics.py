"""``metrics.evaluate`` against scikit-learn class by class, and at Open Images' size."""

import warnings
from typing import Any

import numpy as np
from sklearn import metrics as sklearn_metrics

from benchmarks.report import peak, tell, timed
from partlabel import metrics


def _with_sklearn(scores: Any, labels: Any) -> dict[str, float]:
    """The same figures by the calls that people make."""
    truth, guess = labels == 1, scores >= 0.5
    size = truth.shape[1]
    ap = [sklearn_metrics.average_precision_score(truth[:, j], scores[:, j]) for j in range(size)]
    each = np.array(
        [
            sklearn_metrics.precision_recall_fscore_support(
                truth[:, j], guess[:, j], average="binary", zero_division=0
            )[:3]
            for j in range(size)
        ]
    )
    overall = sklearn_metrics.precision_recall_fscore_support(
        truth.ravel(), guess.ravel(), average="binary", zero_division=0
    )
    return {
        "mAP": float(np.mean(ap)),
        "CP": each[:, 0].mean(),
        "CR": each[:, 1].mean(),
        "macro_F1": each[:, 2].mean(),
        "OP": overall[0],
        "OR": overall[1],
        "OF1": overall[2],
        "exact_match": float((truth == guess).all(axis=1).mean()),
    }


def run() -> None:
    """Both ways on COCO's validation size, then ours on 125,436 x 5,000."""
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((40_137, 80)) < 0.036, 1, -1).astype(np.int8)
    scores = (rng.random(labels.shape) + 0.3 * labels).astype(np.float32)
    ours, result = timed(lambda: metrics.evaluate(scores, labels), repeat=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, expected = timed(lambda: _with_sklearn(scores, labels), repeat=2)
    worst = max(abs(result[name] - value) for name, value in expected.items())
    tell("evaluate 40,137 x 80", f"{ours * 1e3:.0f} ms", "none", True)
    tell("  scikit-learn class by class", f"{theirs * 1e3:.0f} ms", "none", True)
    tell("  ratio", f"{theirs / ours:.1f} x", ">= 3 x", theirs / ours >= 3)
    tell("  largest difference", f"{worst:.1e}", "< 1e-6 (float32)", worst < 1e-6)
    del labels, scores
    scores = rng.random((125_436, 5_000), dtype=np.float32)
    labels = rng.integers(-1, 2, scores.shape, dtype=np.int8)
    seconds, _ = timed(lambda: metrics.evaluate(scores, labels))
    tell("evaluate 125,436 x 5,000", f"{seconds:.1f} s", "none", True)
    tell("  peak memory, scores included", f"{peak():.0f} MB", "< 8192 MB", peak() < 8192)
