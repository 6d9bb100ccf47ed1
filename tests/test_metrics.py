"""Metrics equal those of scikit-learn on full labels, and their definitions on partial labels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import metrics as oracle

from partlabel import LabelTable, metrics
from partlabel.base.errors import InputError

FIGURES = [
    "mAP", "CP", "CR", "CF1", "OP", "OR", "OF1", "macro_F1", "micro_F1", "exact_match",
    "evaluated_classes",
]  # fmt: skip


@st.composite
def scored_labels(draw: st.DrawFn, values: tuple[int, ...]) -> tuple[Any, Any, float]:
    shape = draw(st.tuples(st.integers(1, 12), st.integers(1, 5)))
    with_ties = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
    element = draw(st.sampled_from([with_ties, st.floats(0, 1)]))
    scores = draw(hnp.arrays(np.float64, shape, elements=element))
    labels = draw(hnp.arrays(np.int8, shape, elements=st.sampled_from(values)))
    return scores, labels, draw(st.sampled_from([0.25, 0.5, 0.9]))


@given(scored_labels((-1, 1)))
def test_full_labels_give_the_figures_of_scikit_learn(case: Any) -> None:
    scores, labels, threshold = case
    truth, predicted = labels == 1, scores >= threshold
    evaluated = truth.any(axis=0) & ~truth.all(axis=0)
    result = metrics.evaluate(scores, labels, threshold)
    assert result["evaluated_classes"] == evaluated.sum()
    assert result["exact_match"] == pytest.approx((predicted == truth).all(axis=1).mean(), abs=1e-9)
    if not evaluated.any():
        assert np.isnan(result["mAP"])
        assert np.isnan(result["OF1"])
        return
    truth, predicted, scores = truth[:, evaluated], predicted[:, evaluated], scores[:, evaluated]
    size = truth.shape[1]
    ap = [oracle.average_precision_score(truth[:, j], scores[:, j]) for j in range(size)]
    assert result["mAP"] == pytest.approx(np.mean(ap), abs=1e-9)
    assert result.per_class.AP[evaluated] == pytest.approx(np.array(ap), abs=1e-9)
    for average, names in (
        ("macro", ("CP", "CR", "macro_F1")),
        ("micro", ("OP", "OR", "OF1")),
    ):
        # class by class: for a single column scikit-learn would average over both label values
        stacked = [
            oracle.precision_recall_fscore_support(
                truth[:, j], predicted[:, j], average="binary", zero_division=0
            )[:3]
            for j in range(size)
        ]
        if average == "macro":
            expected = np.mean(stacked, axis=0)
        else:
            expected = oracle.precision_recall_fscore_support(
                truth.ravel(), predicted.ravel(), average="binary", zero_division=0
            )[:3]
        assert [result[name] for name in names] == pytest.approx(list(expected), abs=1e-9)
    assert result["micro_F1"] == result["OF1"]
    cp, cr = result["CP"], result["CR"]
    assert result["CF1"] == pytest.approx(2 * cp * cr / (cp + cr) if cp + cr else 0, abs=1e-9)


def by_definition(scores: Any, labels: Any, threshold: float) -> dict[str, float]:
    """The definitions, written as loops."""
    n, size = scores.shape
    ap, precision, recall, f1 = [], [], [], []
    sums = [0, 0, 0]
    for j in range(size):
        known = [i for i in range(n) if labels[i, j] != 0]
        positive = [i for i in known if labels[i, j] == 1]
        if not positive or len(positive) == len(known):
            continue
        terms = []
        for i in positive:
            above = [k for k in known if scores[k, j] >= scores[i, j]]
            terms.append(sum(labels[k, j] == 1 for k in above) / len(above))
        ap.append(sum(terms) / len(terms))
        predicted = [i for i in known if scores[i, j] >= threshold]
        hits = sum(labels[i, j] == 1 for i in predicted)
        precision.append(hits / len(predicted) if predicted else 0)
        recall.append(hits / len(positive))
        f1.append(2 * hits / (len(predicted) + len(positive)))
        sums = [a + b for a, b in zip(sums, (hits, len(predicted), len(positive)), strict=True)]
    exact = []
    for i in range(n):
        known = [j for j in range(size) if labels[i, j] != 0]
        if known:
            exact.append(all((scores[i, j] >= threshold) == (labels[i, j] == 1) for j in known))

    def mean(values: Any) -> float:
        return sum(values) / len(values) if values else float("nan")

    cp, cr, (hits, predictions, positives) = mean(precision), mean(recall), sums
    empty = float("nan") if not ap else 0.0
    of1 = 2 * hits / (predictions + positives) if predictions + positives else empty
    return {
        "mAP": mean(ap),
        "CP": cp,
        "CR": cr,
        "CF1": 2 * cp * cr / (cp + cr) if cp + cr else empty,
        "OP": hits / predictions if predictions else empty,
        "OR": hits / positives if positives else empty,
        "OF1": of1,
        "macro_F1": mean(f1),
        "micro_F1": of1,
        "exact_match": mean(exact),
        "evaluated_classes": len(ap),
    }


@given(scored_labels((-1, 0, 1)))
def test_partial_labels_give_the_figures_by_definition(case: Any) -> None:
    result = metrics.evaluate(*case)
    assert dict(result) == pytest.approx(by_definition(*case), abs=1e-9, nan_ok=True)
    assert list(result) == FIGURES


@given(scored_labels((-1, 0, 1)))
def test_unknown_labels_are_ignored(case: Any) -> None:
    scores, labels, threshold = case
    changed = np.where(labels == 0, 1 - scores, scores)
    assert dict(metrics.evaluate(changed, labels, threshold)) == pytest.approx(
        dict(metrics.evaluate(scores, labels, threshold)), nan_ok=True
    )


def test_more_classes_than_fit_in_one_chunk() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((50, 200)).astype(np.float32)
    labels = rng.integers(-1, 2, (50, 200))
    assert dict(metrics.evaluate(scores, labels)) == pytest.approx(
        by_definition(scores, labels, 0.5)
    )


def test_macro_f1_is_not_cf1() -> None:
    scores = np.array([[1, 1], [0, 1], [0, 1], [0, 0.0]])
    labels = np.array([[1, 1], [1, -1], [1, -1], [-1, -1]])
    result = metrics.evaluate(scores, labels)
    assert result["macro_F1"] == pytest.approx(0.5)
    assert result["CF1"] == pytest.approx(2 / 3)


def test_a_threshold_per_class_includes_equal_scores() -> None:
    scores, labels = np.array([[0.5, 0.2], [0.4, 0.1]]), np.array([[1, 1], [-1, -1]])
    assert metrics.evaluate(scores, labels)["OR"] == 0.5
    assert metrics.evaluate(scores, labels, [0.5, 0.2])["exact_match"] == 1.0


def test_labels_may_be_a_table() -> None:
    table = LabelTable(["a", "b"], ["x", "y"], [[1, 0], [-1, 1]])
    scores = np.array([[0.9, 0.9], [0.1, 0.1]])
    assert dict(metrics.evaluate(scores, table)) == pytest.approx(
        dict(metrics.evaluate(scores, table.dense())), nan_ok=True
    )
    assert metrics.evaluate(scores, table).per_class.evaluated.tolist() == [True, False]


def test_figures_are_nan_if_nothing_is_known() -> None:
    result = metrics.evaluate(np.zeros((3, 2)), np.zeros((3, 2)))
    assert result["evaluated_classes"] == 0
    assert all(np.isnan(result[name]) for name in FIGURES[:-1])
    empty = metrics.evaluate(np.zeros((0, 2)), np.zeros((0, 2)))
    assert np.isnan(empty["mAP"])


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([[np.nan]], [[1]], "a score is NaN"),
        ([[0.1]], [[2]], "labels must be"),
        ([[0.1]], [[1, 1]], r"scores have shape \(1, 1\), labels \(1, 2\)"),
        ([0.1], [1], "both must be"),
        ([[0.1]], [[True]], "not true and false"),
    ],
)
def test_bad_input(scores: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metrics.evaluate(scores, labels)


def test_bad_thresholds_and_counts() -> None:
    scores, labels = np.array([[0.9, 0.1]]), np.array([[1, -1]])
    with pytest.raises(InputError, match=r"thresholds have shape \(3,\)"):
        metrics.evaluate(scores, labels, [0.1, 0.2, 0.3])
    with pytest.raises(InputError, match="results for 2 classes"):
        metrics.by_annotations(metrics.evaluate(scores, labels), [1])
    with pytest.raises(InputError, match="a score is NaN"):
        metrics.average_precision([np.nan, 1], [1, -1])


def test_groups_of_classes_by_annotations() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.random((40, 7)), rng.choice([-1, 1], (40, 7))
    labels[:, 6] = 0
    result = metrics.evaluate(scores, labels)
    groups = metrics.by_annotations(result, [5, 1, 3, 9, 2, 7, 100], groups=3)
    ap = result.per_class.AP
    assert [group["mAP"] for group in groups] == pytest.approx(
        [ap[[1, 4]].mean(), ap[[2, 0]].mean(), ap[[5, 3]].mean()]
    )
    assert [(g["classes"], g["fewest"], g["most"]) for g in groups] == [
        (2, 1, 2),
        (2, 3, 5),
        (2, 7, 9),
    ]
    assert metrics.average_precision(scores[:, 0], labels[:, 0]) == ap[0]


@given(scored_labels((-1, 0, 1)), st.integers(1, 6))
def test_top_recall_is_the_mean_over_all_orders_of_ties(case: Any, k: int) -> None:
    scores, labels, _ = case
    hits = []
    for i, j in np.argwhere(labels == 1):
        above = sum(s > scores[i, j] for s in scores[i])
        equal = sum(s == scores[i, j] for s in scores[i])
        ranks = [above + offset for offset in range(equal)]
        hits.append(np.mean([rank < k for rank in ranks]))
    expected = np.mean(hits) if hits else float("nan")
    assert metrics.top_recall(scores, labels, k) == pytest.approx(expected, nan_ok=True)
