"""The headline of the report: the figures that a user of the run can expect."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from partlabel.base.errors import count
from partlabel.judging.scoring import Scores
from partlabel.metrics import Evaluation, evaluate
from partlabel.output.report.bootstrap import Interval, Rows, intervals, sample_count
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import percent
from partlabel.training.run_record import Record

_RARE = 10  # present labels of a class, below which its bootstrap samples differ too little
_METRICS = {
    "mAP": (
        "mAP",
        "Mean average precision: how well scores rank images that have a class above images that "
        "do not. The mean over classes. It does not depend on thresholds.",
    ),
    "CF1": (
        "CF1",
        "Harmonic mean of the mean precision and the mean recall over classes. Each class counts "
        "the same.",
    ),
    "OF1": (
        "OF1",
        "Harmonic mean of precision and recall over the labels of all classes together. Frequent "
        "classes count more.",
    ),
    "OP": ("precision (OP)", "Share of the labels predicted as present that are present."),
    "OR": ("recall (OR)", "Share of the labels that are present that are predicted as present."),
    "exact_match": (
        "exact match",
        "Share of the images whose known labels are all predicted correctly.",
    ),
}


class Figure(NamedTuple):
    """A figure of the headline: its name, value and interval as text, and what it means."""

    name: str
    value: str
    interval: str
    explanation: str


class Result(NamedTuple):
    """The figures of a run on its held-out images.

    Args:
        evaluation: at the thresholds of ``predict``.
        intervals: confidence intervals of the figures of the headline.
        samples: the number of bootstrap samples.
    """

    evaluation: Evaluation
    intervals: dict[str, Interval]
    samples: int


def measure(sample: Sample, thresholds: Scores) -> Result:
    """The figures of the run on held-out images at these thresholds [C]."""
    scores, labels = sample.ours.held_out, sample.held_labels
    samples = sample_count(labels.size)

    def figures(rows: Rows) -> Mapping[str, float]:
        result = evaluate(scores[rows], labels[rows], thresholds)
        return {name: result[name] for name in _METRICS}

    evaluation = evaluate(scores, labels, thresholds).named(sample.classes)
    return Result(evaluation, intervals(figures, len(labels), samples), samples)


def headline_figures(sample: Sample, result: Result) -> list[Figure]:
    """The figures at the top of the page."""
    metrics = [
        Figure(name, percent(result.evaluation[metric]), _range(result.intervals[metric]), about)
        for metric, (name, about) in _METRICS.items()
    ]
    training = sample.training
    return [
        *metrics,
        Figure("training images", f"{len(training):,}", "", "Images that the model learned from."),
        Figure("known labels", f"{training.known:.1%}", "", "Share of all training labels."),
    ]


def _range(interval: Interval) -> str:
    if not interval.exists:
        return ""
    low, high = np.clip(interval, 0, 1)
    return f"{percent(low)} to {percent(high)}"


def about_headline(sample: Sample, result: Result) -> str:
    """Which images the figures come from, and how they were made."""
    record = sample.ours.run.record
    sentences = [*_about_images(sample, result), _about_model(record)]
    if record.broken:
        sentences.append(f"{count(len(record.broken), 'image')} could not be read.")
    return " ".join(sentences)


def _about_model(record: Record) -> str:
    if record.members:
        return f"The model combines {count(len(record.members), 'member')}."
    return f"Epoch {record.best_epoch} was kept."


def _about_images(sample: Sample, result: Result) -> list[str]:
    if not len(sample.held_labels):
        return [
            "There are no figures, because the run has no validation images. Train with --val, or "
            "with a split 'holdout', to get them."
        ]
    images = f"{sample.held_kind} image"
    evaluated = int(result.evaluation["evaluated_classes"])
    sentences = [
        f"Figures in percent, on the known labels of {count(len(sample.held_labels), images)}, "
        f"over {evaluated} of {count(len(sample.classes), 'class', 'classes')}.",
        "Classes without a present or without an absent label there are left out, except for exact "
        "match."
        if evaluated < len(sample.classes)
        else "",
        f"These are a random sample of {sample.drawn_from:,}." if sample.drawn_from else "",
        _about_choice(sample),
        _about_thresholds(sample),
    ]
    if any(interval.exists for interval in result.intervals.values()):
        sentences.append(
            "Below each figure: its 95% confidence interval, from "
            f"{result.samples} bootstrap samples of these images (drawn with replacement; normal "
            "interval, corrected for bias). It covers the choice of images, not the differences "
            "between trainings."
        )
        sentences.append(_about_rare_classes(result))
    return [sentence for sentence in sentences if sentence]


def _about_rare_classes(result: Result) -> str:
    """A warning that intervals are too narrow, if classes have few present labels."""
    classes = result.evaluation.per_class
    rare = int((classes["evaluated"] & (classes["present"] < _RARE)).sum())
    if not rare:
        return ""
    has = "class has" if rare == 1 else "classes have"
    return (
        f"{rare} {has} fewer than {_RARE} present labels here, so the intervals of mAP and of "
        "other means over classes are too narrow."
    )


def _about_choice(sample: Sample) -> str:
    """Whether the images served to choose something."""
    if sample.held_kind == "reserved":
        return "Nothing was chosen on these labels."
    if sample.held_kind == "held-out":
        return (
            "Each image is scored by models that were not trained on it, so that all known labels "
            "count. The final model is trained on all of them."
        )
    last = sample.ours.run.settings.keep == "last"
    chosen = "The thresholds" if last else "The epoch and the thresholds"
    return (
        "The run reserved no images, so these are the validation images. "
        f"{chosen} were chosen on them, so the figures are a little too good."
    )


def _about_thresholds(sample: Sample) -> str:
    text = "A label is predicted if its score reaches the threshold of its class, as in `predict`."
    thresholds = sample.ours.run.record.thresholds or [None] * len(sample.classes)
    missing = sum(threshold is None for threshold in thresholds)
    if not missing:
        return text
    return f"{text} {count(missing, 'class', 'classes')} without such a threshold use 50%."
