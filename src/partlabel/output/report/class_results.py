"""The figures of each class, and how they compare with a baseline."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count
from partlabel.judging.scoring import Scores
from partlabel.labels import PRESENT
from partlabel.metrics import Evaluation, by_annotations, evaluate
from partlabel.output.drawing import AMBER, BLUE, GREEN, INK, bars, panels, styled, svg
from partlabel.output.report.analysis import Numbers, best_first
from partlabel.output.report.bootstrap import Rows, intervals, sample_count
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Section, decimal, percent

_FEWEST_CLASSES = 10  # fewer classes are not grouped
_MOST_CURVES = 12  # classes with a precision-recall curve


class ClassRow(NamedTuple):
    """A class in the table of results: figures as text, and the AP in percent for its bar."""

    name: str
    AP: str
    width: float
    precision: str
    recall: str
    F1: str
    threshold: str
    present: str
    absent: str


def class_rows(classes: list[str], result: Evaluation, thresholds: Scores) -> list[ClassRow]:
    """One row per class; thresholds [C] are those of ``predict``."""
    return [
        ClassRow(
            name=name,
            AP=percent(row.AP),
            width=100 * np.nan_to_num(row.AP),
            precision=percent(row.precision),
            recall=percent(row.recall),
            F1=percent(row.F1),
            threshold=percent(threshold),
            present=f"{row.present:,}",
            absent=f"{row.absent:,}",
        )
        for name, row, threshold in zip(classes, result.per_class, thresholds, strict=True)
    ]


def about_classes(sample: Sample) -> str:
    """What the columns of the table are."""
    return (
        f"On {sample.held_kind} labels, in percent. AP (average precision) says how well scores "
        "rank images of the class above others. Precision is the share of the predicted labels "
        "that are correct, recall the share of the present labels that are predicted, and F1 their "
        "harmonic mean. All three are at the threshold of the class, from which on `predict` "
        "counts a label as present. Present and absent are numbers of known labels: the figures of "
        "a class with few of them are not reliable."
    )


def precision_recall(sample: Sample, result: Evaluation) -> list[Section]:
    """Precision over recall for the classes with the most positives."""
    labels, per_class = sample.held_labels, result.per_class
    positives = (labels == PRESENT).sum(axis=0)
    common = np.argsort(-positives, kind="stable")[:_MOST_CURVES]
    columns = [int(j) for j in common if not np.isnan(per_class.AP[j])]
    if not columns:
        return []
    which = (
        f"The {len(columns)} classes with the most known positives. "
        if len(columns) < len(sample.classes)
        else ""
    )
    caption = (
        f"{which}Each point of a curve is a threshold. A lower threshold finds more of the present "
        "labels (recall), and often predicts more wrong ones (precision). The closer a curve is to "
        "the upper right corner, the better. The dot is the threshold that `predict` uses. The "
        "number next to the class is its AP in percent."
    )
    figure = _draw_curves(sample.ours.held_out, labels, columns, sample.classes, per_class)
    return [Section("Precision and recall", caption, figure)]


def _draw_curves(
    scores: Scores, labels: NDArray[Any], columns: list[int], classes: list[str], per_class: Any
) -> str:
    across = min(4, len(columns))
    down = math.ceil(len(columns) / across)
    with styled():
        figure, grid = panels(down, across, 2.3 * across, 1.9 * down)
        for axes, j in zip(grid, columns, strict=False):
            known = labels[:, j] != 0
            order = np.argsort(-scores[known, j], kind="stable")
            hits = np.cumsum((labels[known, j] == PRESENT)[order])
            axes.plot(hits / hits[-1], hits / np.arange(1, len(hits) + 1), color=BLUE, lw=1.8)
            if per_class.predicted[j]:
                axes.plot(per_class.recall[j], per_class.precision[j], "o", color=GREEN, ms=5)
            axes.set_title(f"{classes[j]}  {100 * per_class.AP[j]:.0f}", fontsize=9)
            axes.set(xlim=(0, 1.03), ylim=(0, 1.05))
        for axes in grid[len(columns) :]:
            axes.axis("off")
        figure.supxlabel("recall", fontsize=9, color=INK)
        figure.supylabel("precision", fontsize=9, color=INK)
        return svg(figure)


def groups(sample: Sample, result: Evaluation) -> list[Section]:
    """mAP of classes with few and with many known training labels, if there are enough classes."""
    annotated = by_annotations(result, sample.training)
    if sum(int(group["classes"]) for group in annotated) < _FEWEST_CLASSES:
        return []
    rows = [
        [
            f"G{number}",
            f"{group['classes']}",
            f"{group['fewest']:,} to {group['most']:,}",
            percent(group["mAP"]),
        ]
        for number, group in enumerate(annotated, 1)
    ]
    caption = (
        "Classes in groups, from few known training labels to many, and their mAP on "
        f"{sample.held_kind} labels. If the first groups are much worse, more labels of these "
        "classes help."
    )
    header = ["group", "classes", "known labels per class", "mAP"]
    return [Section("Classes with few and with many labels", caption, header=header, rows=rows)]


def gains(sample: Sample, result: Evaluation) -> list[Section]:
    """AP compared with the baseline's, per class."""
    if sample.baseline is None:
        return []
    before = evaluate(sample.baseline.held_out, sample.held_labels)
    gain = 100 * (result.per_class.AP - before.per_class.AP)
    order = best_first(gain)
    if not order:
        return []
    better = int((gain[order] > 0).sum())
    caption = (
        f"AP on {sample.held_kind} labels minus that of {sample.baseline.name}: {better} of "
        f"{count(len(order), 'class', 'classes')} gain. The mAP changes by "
        f"{decimal(float(np.mean(gain[order])), sign=True)} points, from {percent(before['mAP'])} "
        f"to {percent(result['mAP'])}{_gain_interval(sample)}."
    )
    names = [sample.classes[j] for j in order]
    title = f"Gain over {sample.baseline.name}"
    return [Section(title, caption, gain_bars(gain[order], names))]


def _gain_interval(sample: Sample) -> str:
    """The interval of the gain in mAP, on the same bootstrap samples for both runs."""
    assert sample.baseline is not None
    labels = sample.held_labels
    runs = sample.ours.held_out, sample.baseline.held_out

    def gain(rows: Rows) -> dict[str, float]:
        ours, theirs = (evaluate(scores[rows], labels[rows])["mAP"] for scores in runs)
        return {"mAP": 100 * (ours - theirs)}

    interval = intervals(gain, len(labels), sample_count(2 * labels.size))["mAP"]
    if not interval.exists:
        return ""
    low, high = (decimal(end, sign=True) for end in interval)
    verdict = "" if interval.low * interval.high > 0 else "; it includes 0, so this may be chance"
    return f" (95% confidence interval of the change: {low} to {high}{verdict})"


def gain_bars(gains: Numbers, names: list[str]) -> str:
    """Gains in AP [C], in points; losses have another colour."""
    with styled():
        figure, (axes,) = panels(1, 1, 9, 2.8)
        bars(axes, np.maximum(gains, 0), names, GREEN)
        bars(axes, np.minimum(gains, 0), names, AMBER)
        axes.axhline(0, color="#cbd5e1", lw=0.8)
        axes.set(ylabel="gain in AP (points)")
        return svg(figure)
