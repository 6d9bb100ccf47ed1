"""A scikit-learn estimator for multi-label data with unknown labels, and scorers that ignore them.

Needs scikit-learn: ``pip install 'partlabel[sklearn]'``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from partlabel.base.choices import WHOLE_BATCH
from partlabel.base.errors import InputError
from partlabel.labels import LabelTable, ternary
from partlabel.learning.methods import METHODS
from partlabel.metrics import Evaluation, evaluate
from partlabel.models.features.embeddings import ArrayVectors
from partlabel.training.arguments import make_settings
from partlabel.training.embedded import for_features
from partlabel.training.in_memory import fit_vectors, search_vectors
from partlabel.training.run_split import has_both_kinds
from partlabel.training.settings import AUTO, Settings

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils import ClassifierTags, check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise InputError(
        "partlabel.sklearn needs scikit-learn 1.6 or later: pip install 'partlabel[sklearn]'"
    ) from error

__all__ = [
    "PartialLabelClassifier",
    "average_precision",
    "macro_f1",
    "make_scorer",
    "micro_f1",
]

Floats = NDArray[np.float64]

_DECAY = 1e-3  # of a single method
_NEVER = -20.0  # the logit of a class that is present in no training row
_FEW = 20  # rows that are too few to compare methods on


class PartialLabelClassifier(BaseEstimator):  # type: ignore[misc]
    """A multi-label classifier that learns from the labels that are known.

    It trains linear layers on the features, by any method of partlabel that needs one vector per
    image. By default it tries several methods and combines the best. scikit-learn does not count it
    as a classifier, because its tools for classifiers refuse NaN in ``y``.

    Args:
        method: see ``partlabel methods``. ``auto`` compares several by cross-fitting, which takes a
            while, and sets all of what follows but ``budget``. With fewer than 20 rows it is ``em``
            if only present labels are known, else ``bce``. ``bce`` ignores unknown labels and needs
            known absent ones. Use ``em`` if only present labels are known.
        options: settings of the method, such as ``{"alpha": 0.1}``.
        optimizer: as in :func:`partlabel.train`; None for ``lbfgs`` if the method can use it, else
            ``adam``.
        weight_decay: as in :func:`partlabel.train`; None for 1e-3.
        lr, epochs, batch: as in :func:`partlabel.train`; None for the defaults.
        val: share of the rows to choose the best epoch on; with 0 the last epoch is kept.
        budget: with ``auto``: ``small``, ``medium`` or ``large``, or a number of trainings.
        random_state: seed of every random choice.

    Attributes:
        classes_: [C] names of the classes: the columns of ``y`` if it has names, else 0 to C - 1.
        n_features_in_: number of features.

    >>> X = [[0.0], [0.2], [0.9], [1.0]]
    >>> y = [[1, 0], [1, float("nan")], [0, 1], [float("nan"), 1]]
    >>> PartialLabelClassifier("bce", weight_decay=0.01).fit(X, y).predict([[0.1], [0.8]]).tolist()
    [[1, 0], [0, 1]]
    """

    def __init__(
        self,
        method: str = AUTO,
        *,
        options: Mapping[str, Any] | None = None,
        optimizer: str | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        val: float = 0.0,
        budget: str | int = "small",
        random_state: Any = 0,
    ) -> None:
        self.method = method
        self.options = options
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.epochs = epochs
        self.batch = batch
        self.val = val
        self.budget = budget
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | LabelTable) -> "PartialLabelClassifier":  # noqa: N803
        """Train on features [n, D] and labels [n, C].

        Args:
            X: numbers; scale them before, for example with ``StandardScaler`` in a pipeline.
            y: 1 for present, 0 for absent, NaN for unknown; or a label table with one row per row
                of ``X``. A sparse matrix is refused, since it stores absent and unknown alike.
        """
        self._settings(self.method)  # wrong ones are an error before anything else
        features = validate_data(self, X, dtype=np.float32, ensure_min_samples=2)
        table, self._is_flat = _as_table(y, len(features))
        settings = self._settings(self._method_for(table))
        if self.method == "bce" and not table.counts().absent.any():
            raise InputError(
                "y has no 0, so no label is known to be absent, and bce would learn that all are "
                "present. Use method='em', which learns from present labels alone; or mark "
                "unknown labels as NaN, if the others are meant to be absent"
            )
        self.classes_ = _class_names(y, table)
        if settings.method == AUTO:
            self.model_ = search_vectors(features, table, settings)  # without classes never present
        else:
            self.model_ = fit_vectors(ArrayVectors(features), features.shape[1], table, settings)
        self._learned = table.classes.find(self.model_.classes)
        return self

    def _method_for(self, table: LabelTable) -> str:
        """The method; with too few rows to compare several, one that suits the labels."""
        if self.method != AUTO or len(table) >= _FEW:
            return self.method
        return "bce" if has_both_kinds(table) else "em"

    def decision_function(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Logits [n, C]; a class is likelier present than absent above 0."""
        check_is_fitted(self)
        features = validate_data(self, X, dtype=np.float32, reset=False)
        vectors = torch.from_numpy(np.ascontiguousarray(features))[:, :, None, None]
        with torch.no_grad():
            learned = self.model_(vectors).double().numpy()
        logits = np.full((len(features), len(self.classes_)), _NEVER)
        logits[:, self._learned] = learned
        return logits[:, 0] if self._is_flat else logits

    def predict_proba(self, X: ArrayLike) -> Floats:  # noqa: N803
        """The probability [n, C] that each class is present."""
        return np.asarray(1 / (1 + np.exp(-self.decision_function(X))))

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:  # noqa: N803
        """1 for each class [n, C] whose probability is at least one half, else 0."""
        return np.asarray(self.decision_function(X) >= 0, dtype=np.int64)

    def score(self, X: ArrayLike, y: ArrayLike | LabelTable) -> float:  # noqa: N803
        """The mean average precision over classes, on known labels."""
        return average_precision(self, X, y)

    def _settings(self, method: str) -> Settings:
        """The settings of the training by a method."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if method == AUTO:
            return self._settings_of_auto(seed)
        kind = METHODS.get(method)
        can_solve = kind is not None and kind.in_one_batch
        values = {
            "method": method,
            "options": dict(self.options or {}),
            "optimizer": self.optimizer or (WHOLE_BATCH if can_solve else "adam"),
            "weight_decay": _DECAY if self.weight_decay is None else self.weight_decay,
            "val": self.val,
            "seed": seed,
            "lr": self.lr,
            "epochs": self.epochs,
            "batch": self.batch,
        }
        chosen = {name: value for name, value in values.items() if value is not None}
        return make_settings(**for_features(chosen, has_features=True))

    def _settings_of_auto(self, seed: int) -> Settings:
        """The settings of a search; what it chooses itself is refused."""
        values = {
            "options": dict(self.options or {}),
            "optimizer": self.optimizer,
            "lr": self.lr,
            "weight_decay": self.weight_decay,
            "epochs": self.epochs,
            "batch": self.batch,
            "val": self.val,
            "budget": self.budget,
            "seed": seed,
        }
        return make_settings(**for_features({"method": AUTO, **values}, has_features=True))

    def __sklearn_tags__(self) -> Any:
        """That there may be several targets, and each has two values."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.two_d_labels = True
        tags.classifier_tags = ClassifierTags(multi_class=False, multi_label=True)
        return tags


def _as_table(labels: Any, rows: int) -> tuple[LabelTable, bool]:
    """Labels as a table, and whether they were one column without a second dimension."""
    if isinstance(labels, LabelTable):
        if len(labels) != rows:
            raise InputError(f"X has {rows:,} rows, and y has {len(labels):,}")
        return labels, False
    if labels is None:
        raise InputError("this estimator requires y to be passed, but the target y is None")
    if sparse.issparse(labels):
        raise InputError(
            "y is sparse, and does not tell absent labels from unknown ones; give a dense array "
            "with 1, 0 and NaN, or a LabelTable"
        )
    try:
        values = np.asarray(labels, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"y must have the values 1, 0 and NaN ({error})") from error
    if values.ndim not in (1, 2) or len(values) != rows:
        raise InputError(f"X has {rows:,} rows, and y has the shape {list(values.shape)}")
    matrix = ternary(values.reshape(rows, -1), zero="absent")
    columns = [str(name) for name in range(matrix.shape[1])]
    return LabelTable([str(row) for row in range(rows)], columns, matrix), values.ndim == 1


def _class_names(labels: Any, table: LabelTable) -> NDArray[Any]:
    if isinstance(labels, LabelTable):
        return np.array(list(table.classes))
    names = getattr(labels, "columns", None)  # of a data frame
    return np.arange(len(table.classes)) if names is None else np.asarray(names)


# -- scorers: functions of an estimator, X and y, for ``scoring`` in GridSearchCV ------------------

Scorer = Callable[[Any, Any, Any], float]


def make_scorer(figure: str) -> Scorer:
    """A scorer that measures a figure of :func:`partlabel.metrics.evaluate` on known labels.

    Args:
        figure: such as ``"mAP"``, ``"OF1"`` or ``"macro_f1"``.
    """

    def scorer(estimator: Any, X: Any, y: Any) -> float:  # noqa: N803
        return float(_evaluation(estimator, X, y)[figure])

    scorer.__name__ = figure
    return scorer


def _evaluation(estimator: Any, features: Any, labels: Any) -> Evaluation:
    scores = np.asarray(estimator.predict_proba(features))
    table, _ = _as_table(labels, len(scores))
    return evaluate(scores.reshape(len(scores), -1), table.dense())


def average_precision(estimator: Any, X: Any, y: Any) -> float:  # noqa: N803
    """Mean average precision over classes; unknown labels (NaN) count nowhere.

    Classes without a known present and a known absent label are left out.
    """
    return float(_evaluation(estimator, X, y)["mAP"])


def micro_f1(estimator: Any, X: Any, y: Any) -> float:  # noqa: N803
    """F1 over the known labels of all classes together."""
    return float(_evaluation(estimator, X, y)["OF1"])


def macro_f1(estimator: Any, X: Any, y: Any) -> float:  # noqa: N803
    """The mean of the F1 of each class, on known labels."""
    return float(_evaluation(estimator, X, y)["macro_F1"])
