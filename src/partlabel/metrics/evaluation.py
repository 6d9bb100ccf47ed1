"""How good scores are, over known labels only."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from partlabel.base.errors import InputError
from partlabel.labels import ABSENT, PRESENT, LabelTable

_CELLS = 1 << 22  # scores that are looked at in one go
_CHUNK = 64  # columns that are turned into rows at a time


class Evaluation(Mapping[str, float]):
    """The figures of one evaluation by name, fractions from 0 to 1.

    ``mAP``; ``CP``, ``CR`` means of the classes' precision and recall, ``CF1`` their harmonic mean;
    ``OP``, ``OR``, ``OF1`` the same over all cells together; ``macro_F1`` the mean of the classes'
    F1, ``micro_F1`` the same as OF1; ``exact_match`` the share of images in which all known labels
    are right; ``evaluated_classes`` the number of classes that entered: those with a label known to
    be present and one known to be absent. A figure that nothing entered is NaN.

    Attributes:
        per_class: record array [C] with the fields AP, precision, recall, F1 (NaN for a class that
            did not enter), present, absent (known labels), predicted (of these), evaluated.
    """

    def __init__(self, figures: dict[str, float], per_class: Any) -> None:
        self._figures = figures
        self.per_class = per_class

    def __getitem__(self, name: str) -> float:
        return self._figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures)

    def __len__(self) -> int:
        return len(self._figures)

    def __repr__(self) -> str:
        return f"Evaluation({self._figures})"

    def plus(self, **figures: float) -> "Evaluation":
        """With further figures."""
        return Evaluation({**figures, **self._figures}, self.per_class)


def evaluate(
    scores: ArrayLike, labels: ArrayLike | LabelTable, threshold: ArrayLike = 0.5
) -> Evaluation:
    """Compare scores with the labels that are known.

    Args:
        scores: [n, C], higher means more likely present.
        labels: [n, C] in {-1, 0, 1}, or a table with these rows; 0 (unknown) counts nowhere.
        threshold: a class is predicted where its score is at least this; a number or [C].

    >>> result = evaluate([[0.9, 0.2], [0.4, 0.7]], [[1, -1], [-1, 1]])
    >>> result["mAP"], result["exact_match"], result["evaluated_classes"]
    (1.0, 1.0, 2)
    """
    score, label = _matched(scores, labels)
    n, size = score.shape
    if np.shape(threshold) not in ((), (1,), (size,)):
        raise InputError(f"thresholds are {np.shape(threshold)}; give one number, or [{size}]")
    limits = np.broadcast_to(np.asarray(threshold, dtype=score.dtype), (size,))
    hits, predicted, present, absent = (np.zeros(size, dtype=np.int64) for _ in range(4))
    precision_of = np.full(size, np.nan)
    wrong, known = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    for start in range(0, size, _CHUNK):
        columns = slice(start, start + _CHUNK)
        said = np.ascontiguousarray(score[:, columns].T)
        true = np.ascontiguousarray(label[:, columns].T)
        guess = said >= limits[columns, None]
        is_present, is_absent = true == PRESENT, true == ABSENT
        hits[columns] = (guess & is_present).sum(axis=1)
        false = guess & is_absent
        predicted[columns] = hits[columns] + false.sum(axis=1)
        present[columns], absent[columns] = is_present.sum(axis=1), is_absent.sum(axis=1)
        wrong |= (false | (~guess & is_present)).any(axis=0)
        known |= (is_present | is_absent).any(axis=0)
        for j in range(len(said)):
            precision_of[start + j] = _average_precision(said[j], is_present[j], is_absent[j])
    exact = 1 - wrong[known].mean() if known.any() else np.nan
    return _summary(precision_of, hits, predicted, present, absent, float(exact))


def average_precision(scores: ArrayLike, labels: ArrayLike) -> float:
    """Plain (not interpolated) average precision of one class; NaN without both kinds of label.

    Args:
        scores: [n]
        labels: [n] in {-1, 0, 1}
    """
    score, label = _matched(np.asarray(scores)[:, None], np.asarray(labels)[:, None])
    return _average_precision(score[:, 0], label[:, 0] == PRESENT, label[:, 0] == ABSENT)


def top_recall(scores: ArrayLike, labels: ArrayLike | LabelTable, k: int = 3) -> float:
    """The share of present labels that are among the k classes of highest score in their image.

    Unlike in :func:`evaluate`, classes of which nothing is known take part in the ranking. Of equal
    scores each has the same chance to come first. NaN if no label is known to be present.

    >>> top_recall([[0.9, 0.8, 0.1]], [[1, 0, 1]], k=2)
    0.5
    """
    score, label = _matched(scores, labels)
    image, column = np.nonzero(label == PRESENT)
    found, step = 0.0, max(_CELLS // max(score.shape[1], 1), 1)
    for start in range(0, len(image), step):
        part = slice(start, start + step)
        rows = score[image[part]]
        own = score[image[part], column[part]][:, None]
        above = (rows > own).sum(axis=1)
        equal = (rows == own).sum(axis=1)  # oneself too
        found += float(np.clip((k - above) / equal, 0, 1).sum())
    return found / len(image) if len(image) else float("nan")


def by_annotations(
    result: Evaluation, annotations: ArrayLike | LabelTable, groups: int = 5
) -> list[dict[str, float]]:
    """mAP over groups of classes, from the least to the most annotated one (IMCL, Table 1).

    Args:
        annotations: [C] how many labels each class had in training, or the training labels.
        groups: into how many groups of (nearly) equal size the evaluated classes are cut.

    Returns:
        A mapping per group, with mAP, classes, fewest and most annotations.
    """
    if isinstance(annotations, LabelTable):
        counts = annotations.counts()
        annotations = counts.present + counts.absent
    number = np.asarray(annotations)
    if number.shape != result.per_class.shape:
        raise InputError(f"annotations are {number.shape} for {len(result.per_class)} classes")
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


def _matched(
    scores: ArrayLike, labels: ArrayLike | LabelTable
) -> tuple[NDArray[np.floating[Any]], NDArray[np.int8]]:
    score = np.asarray(scores)
    if not np.issubdtype(score.dtype, np.floating):
        score = score.astype(np.float64)
    label = labels.dense() if isinstance(labels, LabelTable) else np.asarray(labels)
    if label.dtype == np.bool_:
        raise InputError(
            "labels are 1, -1 and 0, not true and false: false could be absent or unknown"
        )
    if score.ndim != 2 or score.shape != label.shape:
        raise InputError(f"scores are {score.shape}, labels {label.shape}; both must be [n, C]")
    for start in range(0, len(score), 4096):
        rows = slice(start, start + 4096)
        if np.isnan(score[rows]).any():
            raise InputError(f"a score is not a number (in rows {start} to {start + 4095})")
        if not np.isin(label[rows], (PRESENT, ABSENT, 0)).all():
            raise InputError("labels must be 1 (present), -1 (absent) or 0 (unknown)")
    return score, label.astype(np.int8, copy=False)


def _average_precision(
    scores: NDArray[Any], present: NDArray[np.bool_], absent: NDArray[np.bool_]
) -> float:
    """The mean over present labels of the precision among all scored at least as high.

    Sorting values is much cheaper than sorting indices, and both kinds can be sorted apart; ties
    share one precision, as in scikit-learn.
    """
    good, bad = np.sort(scores[present]), np.sort(scores[absent])
    if not len(good) or not len(bad):
        return float("nan")
    above_good = len(good) - np.searchsorted(good, good)
    above_bad = len(bad) - np.searchsorted(bad, good)
    return float(np.mean(above_good / (above_good + above_bad)))


def _summary(
    precision_of: NDArray[np.float64],
    hits: NDArray[np.int64],
    predicted: NDArray[np.int64],
    present: NDArray[np.int64],
    absent: NDArray[np.int64],
    exact: float,
) -> Evaluation:
    entered = (present > 0) & (absent > 0)
    precision = np.where(entered, _ratio(hits, predicted), np.nan)
    recall = np.where(entered, _ratio(hits, present), np.nan)
    f1 = np.where(entered, _ratio(2 * hits, predicted + present), np.nan)
    cp, cr = _mean(precision[entered]), _mean(recall[entered])
    total = [int(array[entered].sum()) for array in (hits, predicted, present)]
    op, overall_r, of1 = (
        float(_ratio(np.array(a), np.array(b))) if entered.any() else float("nan")
        for a, b in ((total[0], total[1]), (total[0], total[2]), (2 * total[0], sum(total[1:])))
    )
    figures = {
        "mAP": _mean(precision_of[entered]),
        "CP": cp,
        "CR": cr,
        "CF1": float(_ratio(np.array(2 * cp * cr), np.array(cp + cr))),
        "OP": op,
        "OR": overall_r,
        "OF1": of1,
        "macro_F1": _mean(f1[entered]),
        "micro_F1": of1,
        "exact_match": exact,
        "evaluated_classes": int(entered.sum()),
    }
    fields = {
        "AP": precision_of,
        "precision": precision,
        "recall": recall,
        "F1": f1,
        "present": present,
        "absent": absent,
        "predicted": predicted,
        "evaluated": entered,
    }
    kind = [(name, field.dtype) for name, field in fields.items()]
    return Evaluation(figures, np.rec.fromarrays(list(fields.values()), dtype=kind))


def _ratio(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """a / b, and 0 where b is 0."""
    return np.asarray(np.divide(a, b, out=np.zeros(np.shape(b)), where=b != 0))


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")
