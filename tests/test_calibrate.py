"""Calibration equals logistic regression of scikit-learn; thresholds equal an exhaustive search."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from partlabel.metrics import evaluate, known_cells
from partlabel.metrics.calibration import calibrate, reliability
from partlabel.metrics.class_thresholds import balanced_thresholds, own_thresholds


def by_scikit_learn(x: Any, present: Any) -> tuple[float, float]:
    """Slope and intercept, with Platt's soft targets as weights of two copies of each cell."""
    positives, negatives = present.sum(), (~present).sum()
    target = np.where(present, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    both, values = np.tile(x, 2)[:, None], np.repeat([1, 0], len(x))
    weights = np.concatenate([target, 1 - target])
    model = LogisticRegression(C=np.inf, tol=1e-9).fit(both, values, weights)
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def test_calibration_equals_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2)) * [3, 0.2] + [1, -4]
    true = np.array([[0.5, -1.0], [4.0, 12.0]])
    present = rng.random(x.shape) < expit(x * true[:, 0] + true[:, 1])
    labels = np.where(rng.random(x.shape) < 0.5, np.where(present, 1, -1), 0)
    calibration = calibrate(expit(x), labels)
    assert calibration.own.all()
    for j in range(2):
        known = labels[:, j] != 0
        slope, intercept = by_scikit_learn(x[known, j], labels[known, j] == 1)
        assert calibration.slopes[j] == pytest.approx(slope, rel=1e-3)
        assert calibration.intercepts[j] == pytest.approx(intercept, rel=1e-3, abs=1e-3)
    after = reliability(expit(calibration.logits(expit(x)))[:, 0], present[:, 0])
    assert after.error < 0.03 < reliability(expit(x)[:, 0], present[:, 0]).error


def test_classes_with_few_labels_share_a_line() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 8))
    labels = np.where(rng.random(x.shape) < expit(2 * x), 1, -1)
    labels[8:, 1:] = 0  # too few labels for each class, but enough together
    calibration = calibrate(expit(x), labels)
    assert calibration.own.tolist() == [True] + [False] * 7
    assert len(set(calibration.slopes[1:])) == 1
    slope, intercept = by_scikit_learn(x[:8, 1:].ravel(), labels[:8, 1:].ravel() == 1)
    assert calibration.slopes[1] == pytest.approx(slope, rel=1e-3)
    assert calibration.intercepts[1] == pytest.approx(intercept, rel=1e-3, abs=1e-3)
    assert calibration.slopes[0] != calibration.slopes[1]


@given(st.integers(0, 2**32), st.integers(0, 30))
def test_calibration_keeps_the_order_and_is_finite(seed: int, images: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.choice([0.0, 1e-9, 0.3, 0.5, 0.999, 1.0], (images, 3))
    labels = rng.integers(-1, 2, (images, 3))
    after = calibrate(scores, labels).logits(scores)
    assert np.isfinite(after).all()
    for j in range(3):
        order = np.argsort(scores[:, j], kind="stable")
        assert (np.diff(after[order, j]) >= 0).all()
        assert len(np.unique(after[:, j])) == len(np.unique(scores[:, j]))


@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(1, 20))
def test_reliability_equals_a_loop_over_bins(seed: int, cells: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    predicted, present = rng.choice(np.linspace(0, 1, 41), cells), rng.random(cells) < 0.4
    error = 0.0
    for low in range(bins):
        inside = (predicted * bins >= low) & ((predicted * bins < low + 1) | (low == bins - 1))
        if inside.any():
            error += abs(predicted[inside].mean() - present[inside].mean()) * inside.mean()
    result = reliability(predicted, present, bins)
    assert result.error == pytest.approx(error)
    assert result.cells.sum() == cells


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_thresholds_of_a_class_alone_have_the_best_f1(seed: int, images: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.choice([0.1, 0.2, 0.4, 0.8], (images, 3))
    labels = rng.integers(-1, 2, (images, 3))
    thresholds = own_thresholds(known_cells(scores, labels))

    def f1(j: int, threshold: float) -> float:
        known = labels[:, j] != 0
        predicted, present = scores[known, j] >= threshold, labels[known, j] == 1
        return float(2 * (predicted & present).sum() / max(predicted.sum() + present.sum(), 1))

    for j in range(3):
        if len(set(labels[labels[:, j] != 0, j])) < 2:
            assert np.isnan(thresholds[j])
        else:
            assert f1(j, thresholds[j]) == max(f1(j, score) for score in (0.1, 0.2, 0.4, 0.8))


def make_few(seed: int, images: int) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Honest scores of ten classes that are present in a tenth of the images."""
    rng = np.random.default_rng(seed)
    truth = rng.random((images, 10)) < 0.1
    raw = rng.normal(size=truth.shape) + 3 * truth - 3.7
    return expit(raw), np.where(truth, 1, -1).astype(np.int8)


def test_thresholds_of_few_labels_lean_on_those_of_all_classes() -> None:
    """On new images: the mean F1 of ten classes with about four present labels each."""
    gains = []
    for seed in range(20):
        scores, labels = make_few(seed, 40)
        labels[:, 0] = np.minimum(labels[:, 0], -1)  # nothing of its own to choose on
        alone = np.nan_to_num(own_thresholds(known_cells(scores, labels)), nan=0.5)
        shared = balanced_thresholds(known_cells(scores, labels), calibrate(scores, labels))
        new_scores, truth = make_few(seed + 1000, 2000)
        figures = [evaluate(new_scores, truth, limit)["macro_F1"] for limit in (alone, shared)]
        gains.append(figures[1] - figures[0])
    assert np.mean(gains) > 0.03
    assert (np.array(gains) > 0).sum() >= 18


def test_thresholds_of_many_labels_are_nearly_those_of_the_class_alone() -> None:
    scores, labels = make_few(0, 20_000)
    line = calibrate(scores, labels)
    cells = known_cells(scores, labels)
    mixed, alone = balanced_thresholds(cells, line), own_thresholds(cells)
    assert mixed == pytest.approx(alone, abs=2e-3)


def test_without_absent_labels_there_is_no_threshold() -> None:
    scores, labels = make_few(0, 40)
    labels = np.maximum(labels, 0)
    assert np.isnan(
        balanced_thresholds(known_cells(scores, labels), calibrate(scores, labels))
    ).all()
