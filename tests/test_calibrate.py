"""Thresholds against trying every one of them."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from partlabel.calibrate import balanced_thresholds, choose_thresholds


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any, float]:
    shape = draw(st.tuples(st.integers(0, 12), st.integers(1, 3)))
    scores = draw(
        hnp.arrays(np.float64, shape, elements=st.sampled_from([0.1, 0.2, 0.5, 0.7, 0.9]))
    )
    labels = draw(hnp.arrays(np.int64, shape, elements=st.sampled_from([-1, 0, 1])))
    return scores, labels, draw(st.sampled_from([0.5, 0.75, 0.95, 1.0]))


@given(cases())
def test_what_is_called_present_or_absent_is_right_often_enough(case: Any) -> None:
    scores, labels, precision = case
    thresholds = choose_thresholds(scores, labels, precision)
    decided = thresholds.decide(scores)
    for j in range(labels.shape[1]):
        known = labels[:, j] != 0
        if len(np.unique(labels[known, j])) < 2:
            assert not decided[:, j].any()
            continue
        limits, widest = {}, {}
        for sign in (1, -1):
            limits[sign], widest[sign] = np.inf, 0
            for limit in np.unique(sign * scores[known, j])[::-1]:
                at = known & (sign * scores[:, j] >= limit)
                if (labels[at, j] == sign).mean() >= precision:
                    limits[sign], widest[sign] = limit, int(at.sum())
        for sign in (1, -1):
            called = known & (decided[:, j] == sign)
            if called.any():
                assert (labels[called, j] == sign).mean() >= precision
            if -limits[-1] < limits[1]:  # neither side reaches into the other
                assert called.sum() == widest[sign]


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_balanced_thresholds_have_the_best_f1(seed: int, images: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.choice([0.1, 0.2, 0.4, 0.8], (images, 3))
    labels = rng.integers(-1, 2, (images, 3))
    found = balanced_thresholds(scores, labels)

    def f1(j: int, limit: float) -> float:
        known = labels[:, j] != 0
        called, present = scores[known, j] >= limit, labels[known, j] == 1
        return float(2 * (called & present).sum() / max(called.sum() + present.sum(), 1))

    for j in range(3):
        if len(set(labels[labels[:, j] != 0, j])) < 2:
            assert np.isnan(found[j])
        else:
            assert f1(j, found[j]) == max(f1(j, limit) for limit in (0.1, 0.2, 0.4, 0.8))
