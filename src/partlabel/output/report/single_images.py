"""What the runs predict for single images, in the order of their scores."""

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count
from partlabel.judging.scoring import Scores
from partlabel.labels import PRESENT
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Picture, Section, whole_percent
from partlabel.output.report.thumbnails import thumbnails

_IMAGES, _LABELS = 6, 8
_LEAST_HIGHEST, _SHARE_HIGHEST = 3, 0.01  # of the classes of an image

Mask = NDArray[np.bool_]


def single_images(sample: Sample) -> list[Section]:
    """The present labels of some training and held-out images, with the scores of all runs."""
    known = sample.labels == PRESENT
    present = known
    if sample.truth is not None:
        present = known | (sample.truth.dense(sample.drawn) == PRESENT)
    held = sample.held_labels == PRESENT
    training = {one.name: one.train for one in sample.runs}
    tested = {one.name: one.held_out for one in sample.runs}
    pictures = [
        *_pictures(sample, list(sample.training.ids.take(sample.drawn)), known, present, training),
        *_pictures(sample, list(sample.held_images.ids), held, held, tested),
    ]
    if not pictures:
        return []
    number = highest(len(sample.classes))
    truth = (
        "Labels with a question mark are present according to --truth, and were unknown to the "
        "training. "
        if sample.truth is not None
        else ""
    )
    caption = (
        "The labels that are present in some images, first training images, then "
        f"{sample.held_kind} ones, with their scores. {truth}A tick stands for a label that is "
        f"among the {count(number, 'highest score')} of its image. Look for objects that "
        "one run finds and the other does not."
    )
    return [Section("Labels of single images", caption, pictures=pictures)]


def highest(classes: int) -> int:
    """How many of the scores of an image are its highest: a hundredth, but at least three.

    >>> highest(20), highest(5000)
    (3, 50)
    """
    return max(_LEAST_HIGHEST, round(_SHARE_HIGHEST * classes))


def _pictures(
    sample: Sample, names: list[str], known: Mask, present: Mask, scores: dict[str, Scores]
) -> list[Picture]:
    """Some images with several present labels; with one, if there are no others."""
    numbers = present.sum(axis=1)
    rows = np.flatnonzero(numbers >= min(2, int(numbers.max(initial=0))))
    rows = rows[numbers[rows] > 0]
    if not len(rows):
        return []
    rows = rows[np.linspace(0, len(rows) - 1, min(_IMAGES, len(rows))).astype(int)]
    images = thumbnails(sample.ours.run, [names[row] for row in rows.tolist()])
    return [
        Picture(
            names[row],
            image,
            scores_of_labels(
                sample.classes, known[row], present[row], {n: s[row] for n, s in scores.items()}
            ),
        )
        for row, image in zip(rows.tolist(), images, strict=True)
    ]


def scores_of_labels(
    classes: list[str], known: Mask, present: Mask, scores: dict[str, Scores]
) -> list[tuple[str, str]]:
    """Kind and text of each line below an image: a present label, and its score in each run.

    Args:
        classes: [C] names.
        known, present: [C] labels known to the training, and all that are present.
        scores: [C] of each run by its name; the last one is the run itself.
    """
    own = list(scores.values())[-1]
    number = highest(len(classes))
    columns = np.flatnonzero(present)
    columns = columns[np.argsort(-own[columns], kind="stable")]
    lines = []
    for j in columns[:_LABELS].tolist():
        said = [
            f"{name if len(scores) > 1 else ''} {whole_percent(float(values[j]))}"
            + (" ✓" if (values > values[j]).sum() < number else "")
            for name, values in scores.items()
        ]
        kind, mark = ("known", "●") if known[j] else ("open", "?")
        lines.append((kind, f"{mark} {classes[j]}: {', '.join(text.strip() for text in said)}"))
    if len(columns) > _LABELS:
        lines.append(("absent", f"and {len(columns) - _LABELS:,} more"))
    return lines
