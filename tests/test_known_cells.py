"""Metrics, calibration and thresholds from known labels alone equal those from whole arrays."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from partlabel.base.errors import InputError
from partlabel.judging.top_scores import TopRecall
from partlabel.labels import LabelTable
from partlabel.metrics import evaluate, evaluate_cells, known_cells, top_recall
from partlabel.models.prediction import collect_known

CLASSES = 4


def random_arrays(seed: int, images: int) -> tuple[Any, Any]:
    """Logits with ties, and labels of which many are unknown."""
    rng = np.random.default_rng(seed)
    logits = rng.integers(-3, 4, (images, CLASSES)).astype(np.float32)
    labels = np.where(rng.random(logits.shape) < 0.6, 0, rng.choice([-1, 1], logits.shape))
    return logits, labels.astype(np.int8)


def in_parts(logits: Any, size: int) -> Any:
    rows = np.arange(len(logits))
    for start in range(0, len(rows), size):
        yield rows[start : start + size], torch.from_numpy(logits[start : start + size])


@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(1, 7), st.floats(0, 1))
def test_figures_of_known_cells_are_those_of_arrays(
    seed: int, images: int, part: int, threshold: float
) -> None:
    logits, labels = random_arrays(seed, images)
    table = LabelTable([f"{i}" for i in range(images)], list("abcd"), labels)
    scores = torch.sigmoid(torch.from_numpy(logits).double()).numpy()
    cells = collect_known(in_parts(logits, part), table)
    from_arrays = known_cells(scores, labels)
    for name in ("rows", "columns", "labels", "scores"):
        assert np.array_equal(getattr(cells, name), getattr(from_arrays, name))
    ours, expected = evaluate_cells(cells, threshold), evaluate(scores, labels, threshold)
    assert dict(ours) == pytest.approx(dict(expected), nan_ok=True, rel=0, abs=0)
    for name in ours.per_class.dtype.names:
        np.testing.assert_array_equal(ours.per_class[name], expected.per_class[name])


@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(1, 7), st.integers(1, 5))
def test_top_recall_of_blocks_is_that_of_arrays(seed: int, images: int, part: int, k: int) -> None:
    logits, labels = random_arrays(seed, images)
    top = TopRecall(k)
    for rows, values in in_parts(logits, part):
        cells = known_cells(logits[rows], labels[rows])
        top.add(rows, values, replace(cells, rows=rows[cells.rows]))
    assert top.share == pytest.approx(top_recall(logits, labels, k), nan_ok=True)


def test_a_score_that_is_nan_is_an_error() -> None:
    with pytest.raises(InputError, match="NaN"):
        evaluate_cells(known_cells(np.array([[np.nan]]), np.array([[1]])))
