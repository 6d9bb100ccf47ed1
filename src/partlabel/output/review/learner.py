"""A linear head per class that learns from verdicts, on top of the score of the run.

The logit of an image is ``scale * logit of the run + weights . features + bias``. It starts at the
logit of the run alone. With few verdicts a penalty keeps it there; a class that the run does not
know has only the second part. Each fit starts from the weights of the last one.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from partlabel.metrics.calibration import logits

Floats = NDArray[np.float64]

_SPREAD = 2.0  # standard deviation of the logits that the penalty expects of the features
_SCALE = 0.5  # standard deviation of the scale of the run's logit around 1
_CHUNK = 8192  # images whose features are read at a time
_ITERATIONS = 60


@dataclass(frozen=True)
class Features:
    """Features of all images, read from disk when they are needed.

    Args:
        vectors: [n, D] in half precision, zeros for an image that cannot be read.
        mean, deviation: [D] over the images.
    """

    vectors: NDArray[np.float16]
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def open(cls, path: Path, scale: Path) -> "Features":
        """From the files that were written beside the scores."""
        mean, deviation = np.load(scale)
        return cls(np.load(path, mmap_mode="r"), mean, deviation)

    def standard(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """[m, D] standardised features of some images."""
        return np.asarray((self.vectors[rows].astype(np.float32) - self.mean) / self.deviation)

    def project(self, weights: Floats) -> NDArray[np.float32]:
        """[n] the product of all standardised features with weights [D] or [D, k]."""
        scaled = (weights.T / self.deviation).T.astype(np.float32)
        constant = self.mean @ scaled
        parts = [
            self.vectors[start : start + _CHUNK].astype(np.float32) @ scaled - constant
            for start in range(0, len(self.vectors), _CHUNK)
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)

    def nearest(self, vector: NDArray[np.float32], number: int) -> NDArray[np.int64]:
        """The images whose features are most similar to a vector [D], the most similar first."""
        standard = (vector - self.mean) / self.deviation
        return np.argsort(-self._cosines(standard[None]), kind="stable")[:number]

    def similarity(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """[n] how similar each image is to the most similar of some images."""
        return self._cosines(self.standard(rows))

    def _cosines(self, examples: NDArray[np.float32]) -> NDArray[np.float32]:
        """[n] the highest cosine of each image with standardised examples [m, D]."""
        examples = examples / np.maximum(np.linalg.norm(examples, axis=1, keepdims=True), 1e-6)
        best = np.empty(len(self.vectors), dtype=np.float32)
        for start in range(0, len(best), _CHUNK):
            part = self.standard(np.arange(start, min(start + _CHUNK, len(best))))
            length = np.maximum(np.linalg.norm(part, axis=1), 1e-6)
            best[start : start + _CHUNK] = (part @ examples.T).max(axis=1) / length
        return best


@dataclass(frozen=True)
class Head:
    """The head of one class: weights [D], a bias, and the scale of the run's logit."""

    weights: Floats
    bias: float
    scale: float


def fit(
    features: NDArray[np.float32],
    present: NDArray[np.bool_],
    run_logits: Floats | None,
    start: Head | None = None,
) -> Head:
    """The head with the least penalised logistic loss.

    Args:
        features: [m, D] standardised features.
        present: [m] the labels.
        run_logits: [m] the logits of the run; None if it does not know the class.
        start: where to begin.
    """
    size = features.shape[1]
    start = start or Head(np.zeros(size), 0.0, 1.0)
    sign = np.where(present, 1.0, -1.0)
    offset = np.zeros(len(present)) if run_logits is None else run_logits
    x = features.astype(np.float64)

    def cost(parameters: Floats) -> tuple[float, Floats]:
        weights, bias, scale = parameters[:size], parameters[size], parameters[size + 1]
        margin = sign * (x @ weights + bias + scale * offset)
        slope = -sign * expit(-margin)
        penalty = size / _SPREAD**2 * weights
        of_scale = (scale - 1) / _SCALE**2
        value = np.logaddexp(0, -margin).sum()
        value += 0.5 * (penalty @ weights) + 0.5 * of_scale * (scale - 1)
        ends = [slope.sum(), slope @ offset + of_scale]
        return float(value), np.concatenate([x.T @ slope + penalty, ends])

    first = np.concatenate([start.weights, [start.bias, start.scale]])
    solution = minimize(
        cost, first, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS}
    ).x
    return Head(solution[:size], float(solution[size]), float(solution[size + 1]))


@dataclass
class Learner:
    """The heads of all classes that have verdicts.

    Args:
        features: of all images.
        heads: of the classes that something was learned of.
    """

    features: Features
    heads: dict[str, Head] = field(default_factory=dict)

    def learn(
        self,
        name: str,
        rows: NDArray[np.int64],
        present: NDArray[np.bool_],
        run_scores: NDArray[np.float32] | None,
    ) -> NDArray[np.float32]:
        """Fit the head of a class to the labels of some rows; returns its scores [n]."""
        of_run = None if run_scores is None else logits(np.nan_to_num(run_scores, nan=0.5))
        near = None if of_run is None else np.clip(of_run, -8, 8)
        at_rows = None if near is None else near[rows]
        head = fit(self.features.standard(rows), present, at_rows, self.heads.get(name))
        self.heads[name] = head
        total = self.features.project(head.weights) + head.bias
        if near is not None:
            total = total + head.scale * near
        return np.asarray(expit(total), dtype=np.float32)
