"""The scikit-learn estimator: its conventions, unknown labels, and the tools around it."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from partlabel import LabelTable
from partlabel.base.errors import InputError
from partlabel.sklearn import (
    PartialLabelClassifier,
    average_precision,
    macro_f1,
    make_scorer,
    micro_f1,
)

NAN = float("nan")


def made(rows: int = 120, unknown: float = 0.5) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Features, labels with NaN, and all labels."""
    draw = np.random.default_rng(1)
    truth = (draw.random((rows, 3)) < 0.4).astype(float)
    features = draw.normal(size=(rows, 5)) * 0.4
    features[:, :3] += truth
    return features, np.where(draw.random(truth.shape) < unknown, NAN, truth), truth


EXPECTED_FAILURES = {
    "check_estimators_dtypes": "the check passes the labels 1 and 2; labels are 1, 0 and NaN",
    "check_fit2d_1feature": "the check passes the labels 1 and 2; labels are 1, 0 and NaN",
}


def expected_failures(estimator: Any) -> dict[str, str]:
    return EXPECTED_FAILURES


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [PartialLabelClassifier("bce", epochs=3)], expected_failed_checks=expected_failures
)
@pytest.mark.filterwarnings("ignore")
def test_conventions(estimator: Any, check: Any) -> None:
    check(estimator)


def test_by_default_it_compares_methods(capsys: pytest.CaptureFixture[str]) -> None:
    features, labels, truth = made()
    model = PartialLabelClassifier(budget=10).fit(features, labels)
    assert model.method == "auto"
    assert average_precision(model, features, truth) > 0.93
    assert capsys.readouterr().err == ""
    again = clone(model).fit(features, labels)
    np.testing.assert_array_equal(again.predict_proba(features), model.predict_proba(features))
    never = np.where(np.arange(3) == 1, 0, labels)
    left_out = PartialLabelClassifier(budget=5).fit(features, never).predict_proba(features)
    assert left_out.shape == (120, 3)
    assert left_out[:, 1].max() < 1e-6


def test_a_few_rows_are_not_searched() -> None:
    features, _, truth = made(12)
    settings = PartialLabelClassifier()._settings
    model = PartialLabelClassifier().fit(features, truth)
    assert model._method_for(LabelTable(["a"], ["x"], [[1]])) == "em"
    assert settings("auto").method == "auto"
    bce = PartialLabelClassifier("bce").fit(features, truth)
    np.testing.assert_array_equal(model.predict_proba(features), bce.predict_proba(features))


def test_it_learns_from_what_is_known() -> None:
    features, labels, truth = made()
    model = PartialLabelClassifier("bce").fit(features, labels)
    assert model.predict_proba(features).shape == (120, 3)
    assert (model.predict(features) == (model.decision_function(features) >= 0)).all()
    assert model.score(features, truth) > 0.93
    assert model.classes_.tolist() == [0, 1, 2]


def test_it_is_logistic_regression_where_all_is_known() -> None:
    """With the same penalty: half the weight decay times the squared weights, per label."""
    features, _, truth = made(unknown=0)
    decay = 1e-2
    ours = PartialLabelClassifier("bce", weight_decay=decay, epochs=200).fit(features, truth)
    for column in range(3):
        # the loss is a mean over all labels, three times as many as one class has
        theirs = LogisticRegression(C=1 / (decay * 3 * len(truth)), tol=1e-8, max_iter=1000)
        theirs.fit(features, truth[:, column])
        np.testing.assert_allclose(
            ours.decision_function(features)[:, column],
            theirs.decision_function(features),
            atol=2e-2,
        )


def test_tables_and_positives_only() -> None:
    features, _, truth = made()
    names = ["a", "b", "c"]
    positives = np.where(truth == 1, 1, 0).astype(np.int8)
    table = LabelTable([str(n) for n in range(len(truth))], names, positives)
    with pytest.raises(InputError, match="Use method='em'"):
        PartialLabelClassifier("bce").fit(features, table)
    model = PartialLabelClassifier("em", options={"alpha": 0.1}).fit(features, table)
    assert model.classes_.tolist() == names
    assert average_precision(model, features, truth) > 0.9


@pytest.mark.parametrize("method", ["an", "em-apl", "role", "partial-bce", "imcl", "wan", "splc"])
def test_methods_of_several_kinds(method: str) -> None:
    features, labels, truth = made()
    own: dict[str, dict[str, Any]] = {"em-apl": {"warmup": 1}, "role": {"expected": 1.2}}
    options = own.get(method, {})
    model = PartialLabelClassifier(method, options=options, epochs=4, optimizer="adam", lr=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = model.fit(features, labels).predict_proba(features)
        again = clone(model).fit(features, labels).predict_proba(features)
    np.testing.assert_array_equal(first, again)
    assert average_precision(model, features, truth) > 0.6


def test_tools_of_scikit_learn() -> None:
    features, labels, truth = made()
    pipeline = make_pipeline(StandardScaler(), PCA(4), PartialLabelClassifier("bce"))
    grid = {"partiallabelclassifier__weight_decay": [1e-3, 1e-1]}
    search = GridSearchCV(pipeline, grid, scoring=average_precision, cv=3)
    search.fit(features, labels)
    assert search.best_score_ > 0.8
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(
        copy.predict_proba(features), search.best_estimator_.predict_proba(features)
    )
    for scorer in (micro_f1, macro_f1, make_scorer("exact_match")):
        scores = cross_val_score(
            PartialLabelClassifier("bce"), features, labels, scoring=scorer, cv=3
        )
        assert (scores > 0.4).all()
    assert (cross_val_score(PartialLabelClassifier("bce"), features, truth, cv=3) > 0.8).all()


def test_pandas_and_set_output() -> None:
    pandas = pytest.importorskip("pandas")
    features, labels, _ = made()
    frame = pandas.DataFrame(features, columns=list("vwxyz"))
    names = pandas.DataFrame(labels, columns=["cat", "dog", "cow"])
    pipeline = make_pipeline(StandardScaler(), PartialLabelClassifier("bce")).set_output(
        transform="pandas"
    )
    model = pipeline.fit(frame, names)[-1]
    assert model.classes_.tolist() == ["cat", "dog", "cow"]
    assert model.feature_names_in_.tolist() == list("vwxyz")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (sparse.csr_array(np.eye(4)), "y is sparse"),
        (np.full((4, 2), 2.0), r"2 at \[0, 0\]: labels are 1 \(present\), 0"),
        ([["a"], ["b"], ["c"], ["d"]], "must have the values 1, 0 and NaN"),
        (np.ones((3, 2)), "X has 4 rows, and y has the shape"),
        (LabelTable(["a"], ["x"], [[1]]), "X has 4 rows, and y has 1"),
    ],
)
def test_bad_labels(labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PartialLabelClassifier().fit(np.eye(4), labels)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "sr"}, "'sr' compares views"),
        ({"method": "bcee"}, "did you mean 'bce'"),
        ({"method": "bce", "options": {"alpha": 1}}, "there is no setting of this method 'alpha'"),
        ({"options": {"alpha": 1}}, "--set has no effect with --method auto"),
        ({"weight_decay": 0.1}, "--weight-decay has no effect with --method auto"),
        ({"budget": "vast"}, "budget"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    features, labels, _ = made()
    with pytest.raises(InputError, match=message):
        PartialLabelClassifier(**settings).fit(features, labels)
