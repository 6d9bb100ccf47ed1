"""Metrics of scores against known labels. Unknown labels are ignored."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from partlabel.base.errors import InputError
from partlabel.base.text_tables import html_table, text_table
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.metrics.known_cells import KnownCells

_CHUNK = 64  # classes that are transposed at a time


class Evaluation(Mapping[str, float]):
    """The metrics of one evaluation by name, as fractions from 0 to 1.

    A class is evaluated if at least one of its labels is known to be present and at least one is
    known to be absent. A metric is NaN if nothing could be evaluated.

    * ``mAP``: mean of the average precision over classes.
    * ``CP``, ``CR``, ``CF1``: mean precision and mean recall over classes, and the harmonic mean of
      these two.
    * ``OP``, ``OR``, ``OF1``: precision, recall and F1 over the known cells of all evaluated
      classes together.
    * ``macro_F1``: mean F1 over classes. ``micro_F1``: the same as ``OF1``.
    * ``exact_match``: share of the images with known labels in which all of these are predicted
      correctly.
    * ``evaluated_classes``: number of evaluated classes.

    Attributes:
        per_class: record array [C] with the fields AP, precision, recall, F1 (NaN for a class that
            is not evaluated), present and absent (number of known labels), predicted (number of
            known labels predicted as present) and evaluated.
        classes: [C] the names of the classes, None if they are not known.
        thresholds: [C] a class is predicted as present if its score is at least this.
    """

    def __init__(
        self,
        figures: dict[str, float],
        per_class: Any,
        thresholds: NDArray[Any],
        classes: Sequence[str] | None = None,
    ) -> None:
        self._figures = figures
        self.per_class, self.thresholds = per_class, thresholds
        self.classes = None if classes is None else list(classes)

    def __getitem__(self, name: str) -> float:
        return self._figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures)

    def __len__(self) -> int:
        return len(self._figures)

    def __repr__(self) -> str:
        return f"Evaluation({self._figures})"

    def __str__(self) -> str:
        return f"{text_table(*self.class_table())}\n{self.summary()}"

    def _repr_html_(self) -> str:
        lines = self.summary().replace("\n", "<br>")
        return f"{html_table(*self.class_table())}<p>{lines}</p>"

    def class_table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows of a table of the classes, with metrics in percent."""
        metrics, counts = ["AP", "precision", "recall", "F1"], ["present", "absent"]
        names = self.classes or [f"class {j}" for j in range(len(self.per_class))]
        rows = [
            [
                name,
                *(_percent(row[metric]) for metric in metrics),
                *(f"{row[number]:,}" for number in counts),
            ]
            for name, row in zip(names, self.per_class, strict=True)
        ]
        return ["class", *metrics, *counts], rows

    def summary(self) -> str:
        """The main metrics in percent: of the ranking, then of the decisions at the thresholds."""
        percent = {name: _percent(value) for name, value in self.items()}
        classes = f"{self['evaluated_classes']:.0f} of {len(self.per_class)} classes"
        ranking = f"mAP {percent['mAP']} over {classes}, on known labels only"
        if "top3_recall" in self:
            ranking += f"; recall of the three highest scores per image {percent['top3_recall']}"
        limits = np.unique(self.thresholds)
        where = f"the threshold {limits[0]:g}" if len(limits) == 1 else "one threshold per class"
        return f"""{ranking}
at {where}:
  CF1 {percent["CF1"]} (mean precision {percent["CP"]} and mean recall {percent["CR"]} of classes)
  OF1 {percent["OF1"]} (precision {percent["OP"]} and recall {percent["OR"]} of all known labels)
  images with every known label right {percent["exact_match"]}"""

    @property
    def unpredicted(self) -> int:
        """The number of measured classes of which no present label reaches the threshold."""
        return int((self._is_measured & (self.per_class["recall"] == 0)).sum())

    @property
    def measured(self) -> int:
        """The number of classes with present and absent labels."""
        return int(self._is_measured.sum())

    @property
    def _is_measured(self) -> NDArray[np.bool_]:
        rows = self.per_class
        measured: NDArray[np.bool_] = (rows["present"] > 0) & (rows["absent"] > 0)
        return measured

    def plus(self, **figures: float) -> "Evaluation":
        """A copy with additional metrics, which come before the others."""
        return Evaluation(
            {**figures, **self._figures}, self.per_class, self.thresholds, self.classes
        )

    def named(self, classes: Sequence[str]) -> "Evaluation":
        """A copy that knows the names of the classes."""
        return Evaluation(self._figures, self.per_class, self.thresholds, classes)


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.2f}"


def evaluate(
    scores: ArrayLike, labels: ArrayLike | LabelTable, threshold: ArrayLike = 0.5
) -> Evaluation:
    """Compare scores with known labels.

    Args:
        scores: [n, C], higher means more likely present.
        labels: [n, C] in {-1, 0, 1}, or a table with these rows. 0 (unknown) is ignored.
        threshold: a class is predicted as present if its score is at least this; a number or [C].

    >>> result = evaluate([[0.9, 0.2], [0.4, 0.7]], [[1, -1], [-1, 1]])
    >>> result["mAP"], result["exact_match"], result["evaluated_classes"]
    (1.0, 1.0, 2)
    """
    score, label = checked(scores, labels)
    n, size = score.shape
    limits = limits_of_classes(threshold, size, score.dtype)
    hits, predicted, present, absent = (np.zeros(size, dtype=np.int64) for _ in range(4))
    average_precisions = np.full(size, np.nan)
    wrong, known = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    for start in range(0, size, _CHUNK):
        columns = slice(start, start + _CHUNK)
        score_rows = np.ascontiguousarray(score[:, columns].T)
        label_rows = np.ascontiguousarray(label[:, columns].T)
        is_predicted = score_rows >= limits[columns, None]
        is_present, is_absent = label_rows == PRESENT, label_rows == ABSENT
        hits[columns] = (is_predicted & is_present).sum(axis=1)
        false_alarm = is_predicted & is_absent
        predicted[columns] = hits[columns] + false_alarm.sum(axis=1)
        present[columns], absent[columns] = is_present.sum(axis=1), is_absent.sum(axis=1)
        wrong |= (false_alarm | (~is_predicted & is_present)).any(axis=0)
        known |= (is_present | is_absent).any(axis=0)
        for j in range(len(score_rows)):
            average_precisions[start + j] = precision_of_ranking(
                score_rows[j], is_present[j], is_absent[j]
            )
    exact = 1 - wrong[known].mean() if known.any() else np.nan
    return summarise(average_precisions, hits, predicted, present, absent, limits, float(exact))


def evaluate_cells(cells: KnownCells, threshold: ArrayLike = 0.5) -> Evaluation:
    """As :func:`evaluate`, from the scores of known labels alone."""
    if np.isnan(cells.scores).any():
        raise InputError("a score is NaN")
    limits = limits_of_classes(threshold, cells.classes, cells.scores.dtype)
    is_predicted, is_present = cells.scores >= limits[cells.columns], cells.labels == PRESENT
    hits, predicted, present, absent = (
        np.bincount(cells.columns[chosen], minlength=cells.classes)
        for chosen in (is_predicted & is_present, is_predicted, is_present, ~is_present)
    )
    average_precisions = np.full(cells.classes, np.nan)
    for j, own in enumerate(cells.by_class):
        average_precisions[j] = precision_of_ranking(
            cells.scores[own], is_present[own], ~is_present[own]
        )
    images = np.count_nonzero(np.bincount(cells.rows))
    wrong = np.count_nonzero(np.bincount(cells.rows[is_predicted != is_present]))
    exact = 1 - wrong / images if images else float("nan")
    return summarise(average_precisions, hits, predicted, present, absent, limits, exact)


def limits_of_classes(threshold: ArrayLike, size: int, dtype: Any) -> NDArray[Any]:
    """[C] the threshold of each class, given one number or one per class."""
    if np.shape(threshold) not in ((), (1,), (size,)):
        raise InputError(
            f"thresholds have shape {np.shape(threshold)}; give one number, or an array [{size}]"
        )
    return np.broadcast_to(np.asarray(threshold, dtype=dtype), (size,))


def average_precision(scores: ArrayLike, labels: ArrayLike) -> float:
    """Average precision of one class, not interpolated.

    NaN unless both present and absent labels are known.

    Args:
        scores: [n]
        labels: [n] in {-1, 0, 1}
    """
    score, label = checked(np.asarray(scores)[:, None], np.asarray(labels)[:, None])
    return precision_of_ranking(score[:, 0], label[:, 0] == PRESENT, label[:, 0] == ABSENT)


def by_annotations(
    result: Evaluation, annotations: ArrayLike | LabelTable, groups: int = 5
) -> list[dict[str, float]]:
    """mAP of groups of classes, ordered by the number of training labels (IMCL, Table 1).

    Args:
        result: an evaluation of C classes.
        annotations: [C] number of training labels per class, or the table of training labels.
        groups: number of groups of (nearly) equal size.

    Returns:
        One dictionary per group, the least annotated classes first: ``mAP``, the number of
        ``classes``, and the ``fewest`` and ``most`` training labels of a class in the group.
    """
    if isinstance(annotations, LabelTable):
        counts = annotations.counts()
        annotations = counts.present + counts.absent
    number = np.asarray(annotations)
    if number.shape != result.per_class.shape:
        raise InputError(
            f"annotations have shape {number.shape}, but there are results for "
            f"{len(result.per_class)} classes"
        )
    evaluated = np.flatnonzero(result.per_class.evaluated)
    order = evaluated[np.argsort(number[evaluated], kind="stable")]
    return [
        {
            "mAP": float(result.per_class.AP[part].mean()),
            "classes": len(part),
            "fewest": int(number[part].min()),
            "most": int(number[part].max()),
        }
        for part in np.array_split(order, groups)
        if len(part)
    ]


def checked(
    scores: ArrayLike, labels: ArrayLike | LabelTable
) -> tuple[NDArray[np.floating[Any]], NDArray[np.int8]]:
    """Scores [n, C] and labels [n, C] as arrays; raises an error if they are not valid."""
    score = np.asarray(scores)
    if not np.issubdtype(score.dtype, np.floating):
        score = score.astype(np.float64)
    label = labels.dense() if isinstance(labels, LabelTable) else np.asarray(labels)
    if label.dtype == np.bool_:
        raise InputError(
            "labels must be 1, -1 and 0, not true and false: false could mean absent or unknown"
        )
    if score.ndim != 2 or score.shape != label.shape:
        raise InputError(
            f"scores have shape {score.shape}, labels {label.shape}; both must be [n, C]"
        )
    for start in range(0, len(score), 4096):
        rows = slice(start, start + 4096)
        if np.isnan(score[rows]).any():
            raise InputError(f"a score is NaN (in rows {start} to {start + 4095})")
        if not np.isin(label[rows], (PRESENT, ABSENT, 0)).all():
            raise InputError("labels must be 1 (present), -1 (absent) or 0 (unknown)")
    return score, label.astype(np.int8, copy=False)


def precision_of_ranking(
    scores: NDArray[Any], present: NDArray[np.bool_], absent: NDArray[np.bool_]
) -> float:
    """The mean over present labels of the precision at a threshold equal to the label's score.

    Equal scores share one precision, as in scikit-learn. Present and absent scores are sorted
    separately, by value: that is much faster than sorting indices.

    Args:
        scores, present, absent: [n]
    """
    positives, negatives = np.sort(scores[present]), np.sort(scores[absent])
    if not len(positives) or not len(negatives):
        return float("nan")
    hits = len(positives) - np.searchsorted(positives, positives)
    false_alarms = len(negatives) - np.searchsorted(negatives, positives)
    return float(np.mean(hits / (hits + false_alarms)))


def summarise(
    average_precisions: NDArray[np.float64],
    hits: NDArray[np.int64],
    predicted: NDArray[np.int64],
    present: NDArray[np.int64],
    absent: NDArray[np.int64],
    limits: NDArray[Any],
    exact: float,
) -> Evaluation:
    """Aggregate the counts of each class [C], decided at these thresholds [C]."""
    evaluated = (present > 0) & (absent > 0)
    precision = np.where(evaluated, _ratio(hits, predicted), np.nan)
    recall = np.where(evaluated, _ratio(hits, present), np.nan)
    f1 = np.where(evaluated, _ratio(2 * hits, predicted + present), np.nan)
    cp, cr = _mean(precision[evaluated]), _mean(recall[evaluated])
    totals = [int(array[evaluated].sum()) for array in (hits, predicted, present)]
    op, overall_r, of1 = (
        float(_ratio(np.array(a), np.array(b))) if evaluated.any() else float("nan")
        for a, b in (
            (totals[0], totals[1]),
            (totals[0], totals[2]),
            (2 * totals[0], sum(totals[1:])),
        )
    )
    figures = {
        "mAP": _mean(average_precisions[evaluated]),
        "CP": cp,
        "CR": cr,
        "CF1": float(_ratio(np.array(2 * cp * cr), np.array(cp + cr))),
        "OP": op,
        "OR": overall_r,
        "OF1": of1,
        "macro_F1": _mean(f1[evaluated]),
        "micro_F1": of1,
        "exact_match": exact,
        "evaluated_classes": int(evaluated.sum()),
    }
    fields = {
        "AP": average_precisions,
        "precision": precision,
        "recall": recall,
        "F1": f1,
        "present": present,
        "absent": absent,
        "predicted": predicted,
        "evaluated": evaluated,
    }
    dtype = [(name, field.dtype) for name, field in fields.items()]
    return Evaluation(figures, np.rec.fromarrays(list(fields.values()), dtype=dtype), limits)


def _ratio(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """a / b, and 0 where b is 0."""
    return np.asarray(np.divide(a, b, out=np.zeros(np.shape(b)), where=b != 0))


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")
