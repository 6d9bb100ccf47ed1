"""Training images with their known labels, and the labels that ``complete`` would fill in."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.judging.completion import Assessment
from partlabel.labels import ABSENT, PRESENT
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Picture, whole_percent
from partlabel.output.report.thumbnails import thumbnails

_IMAGES = 18


class Kind(NamedTuple):
    """A kind of label below an image.

    Args:
        mark: stands before each label.
        most: the number of labels that are named.
        scored: whether the score is shown.
        ending: how the number of further labels ends; empty to leave it out.
    """

    mark: str
    most: int
    scored: bool
    ending: str


_KINDS = {
    "known": Kind("●", 6, False, "known present"),
    "filled": Kind("+", 6, True, "filled in as present"),
    "open": Kind("?", 3, True, ""),
    "filled-absent": Kind("\N{MINUS SIGN}", 2, True, "absent"),
    "absent": Kind("○", 2, False, "known absent"),
}


def example_images(sample: Sample, assessment: Assessment) -> list[Picture]:
    """Some training images."""
    number = len(sample.drawn)
    rows = np.linspace(0, number - 1, min(_IMAGES, number)).astype(int)
    names = list(sample.training.ids.take(sample.drawn[rows]))
    row_of_run = sample.ours.run.selection.train[sample.drawn[rows]]
    decided, logits = assessment.decided(row_of_run)
    images = thumbnails(sample.ours.run, names)
    return [
        Picture(name, image, describe(sample.classes, *cells))
        for name, image, *cells in zip(
            names, images, sample.labels[rows], expit(logits), decided, strict=True
        )
    ]


def describe(
    classes: list[str], known: NDArray[Any], scores: NDArray[Any], decided: NDArray[Any]
) -> list[tuple[str, str]]:
    """Kind and text of each line below an image; within a kind, the highest score comes first.

    Args:
        known: [C] the known labels of the image.
        scores: [C] calibrated scores.
        decided: [C] the labels that would be filled in where no label is known.
    """
    unknown = known == 0
    cells = {
        "known": known == PRESENT,
        "filled": unknown & (decided == PRESENT),
        "open": unknown & (decided == 0),
        "filled-absent": unknown & (decided == ABSENT),
        "absent": known == ABSENT,
    }
    order = np.argsort(-scores, kind="stable")
    lines = []
    for name, kind in _KINDS.items():
        columns = order[cells[name][order]].tolist()
        for j in columns[: kind.most]:
            score = f" {whole_percent(scores[j])}" if kind.scored else ""
            lines.append((name, f"{kind.mark} {classes[j]}{score}"))
        if kind.ending and len(columns) > kind.most:
            lines.append((name, f"and {len(columns) - kind.most:,} more {kind.ending}"))
    return lines
