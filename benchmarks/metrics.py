"""``metrics.evaluate`` compared with scikit-learn, and at the size of Open Images."""

import warnings
from typing import Any

import numpy as np
from sklearn import metrics as sklearn_metrics

from benchmarks.report import peak, print_result, timed
from partlabel import metrics


def _with_sklearn(scores: Any, labels: Any) -> dict[str, float]:
    """The same metrics by calls of scikit-learn for each class."""
    truth, predicted = labels == 1, scores >= 0.5
    size = truth.shape[1]
    ap = [sklearn_metrics.average_precision_score(truth[:, j], scores[:, j]) for j in range(size)]
    per_class = np.array(
        [
            sklearn_metrics.precision_recall_fscore_support(
                truth[:, j], predicted[:, j], average="binary", zero_division=0
            )[:3]
            for j in range(size)
        ]
    )
    overall = sklearn_metrics.precision_recall_fscore_support(
        truth.ravel(), predicted.ravel(), average="binary", zero_division=0
    )
    return {
        "mAP": float(np.mean(ap)),
        "CP": per_class[:, 0].mean(),
        "CR": per_class[:, 1].mean(),
        "macro_F1": per_class[:, 2].mean(),
        "OP": overall[0],
        "OR": overall[1],
        "OF1": overall[2],
        "exact_match": float((truth == predicted).all(axis=1).mean()),
    }


def run() -> None:
    """Compare both at the size of COCO's validation set, then measure on 125,436 x 5,000 scores."""
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((40_137, 80)) < 0.036, 1, -1).astype(np.int8)
    scores = (rng.random(labels.shape) + 0.3 * labels).astype(np.float32)
    seconds, result = timed(lambda: metrics.evaluate(scores, labels), repeat=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sklearn_seconds, expected = timed(lambda: _with_sklearn(scores, labels), repeat=2)
    difference = max(abs(result[name] - value) for name, value in expected.items())
    print_result("evaluate 40,137 x 80 scores", f"{seconds * 1e3:.0f} ms", "none", True)
    print_result("  scikit-learn, class by class", f"{sklearn_seconds * 1e3:.0f} ms", "none", True)
    print_result(
        "  ratio: scikit-learn / partlabel",
        f"{sklearn_seconds / seconds:.1f} x",
        ">= 3 x",
        sklearn_seconds / seconds >= 3,
    )
    print_result("  largest difference", f"{difference:.1e}", "< 1e-6 (float32)", difference < 1e-6)
    del labels, scores
    scores = rng.random((125_436, 5_000), dtype=np.float32)
    labels = rng.integers(-1, 2, scores.shape, dtype=np.int8)
    seconds, _ = timed(lambda: metrics.evaluate(scores, labels))
    print_result("evaluate 125,436 x 5,000 scores", f"{seconds:.1f} s", "none", True)
    print_result(
        "  peak memory, including the scores", f"{peak():.0f} MB", "< 8192 MB", peak() < 8192
    )
