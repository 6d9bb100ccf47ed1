"""Where runs look: class maps of their heads as heat maps over images."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from partlabel.images.pictures import read_picture
from partlabel.judging.completion import Assessment
from partlabel.judging.scoring import Scores, thresholds_or_half
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.models import Classifier
from partlabel.models.heads import LabelDecoder, class_maps_of, heat_maps
from partlabel.models.prediction import Predictions, iterate_logits
from partlabel.output.report.sample import RunScores, Sample
from partlabel.output.report.section import whole_percent
from partlabel.output.report.thumbnails import data_address, overlay
from partlabel.training.devices import find_device
from partlabel.training.embedded import inputs_of
from partlabel.training.image_files import locate_all
from partlabel.training.run import Run

_IMAGES = 6
_SIZE = 168  # width of an image in pixels
_KINDS = ("known", "absent", "filled", "open")
_MARKS = {"known": "●", "absent": "○", "filled": "+", "open": "?"}


@dataclass(frozen=True)
class Choice:
    """A label of an image that gets a heat map.

    Args:
        kind: ``known`` to be present; known to be ``absent``, but predicted; ``filled`` in as
            present; or ``open``, the likeliest of those that stay unknown.
        column: its class.
    """

    kind: str
    column: int


def choose_labels(
    labels: NDArray[Any], scores: NDArray[Any], thresholds: NDArray[Any], decided: NDArray[Any]
) -> list[Choice]:
    """The likeliest label of each kind, an open one only if none is filled in.

    Args:
        labels: [C] the known labels of an image.
        scores: [C]
        thresholds: [C] a class is predicted if its score is at least this.
        decided: [C] the labels that would be filled in.
    """
    cells = {
        "known": labels == PRESENT,
        "absent": (labels == ABSENT) & (scores >= thresholds),
        "filled": (labels == 0) & (decided == PRESENT),
        "open": (labels == 0) & (decided == 0),
    }
    if cells["filled"].any():
        del cells["open"]
    return [
        Choice(kind, int(np.where(of_kind, scores, -np.inf).argmax()))
        for kind, of_kind in cells.items()
        if of_kind.any()
    ]


def choose_images(choices: list[list[Choice]], most: int) -> list[int]:
    """At most this many images, in which rare kinds of labels are about as frequent as others.

    Args:
        choices: the labels of each image that would get a heat map.
        most: the number of images.
    """
    has = np.array([[kind in {c.kind for c in image} for kind in _KINDS] for image in choices])
    chosen: list[int] = []
    while len(chosen) < min(most, len(choices)):
        times = has[chosen].sum(axis=0)
        gain = (has / (1.0 + times)).sum(axis=1)
        gain[chosen] = -1
        chosen.append(int(gain.argmax()))
    return chosen


def class_maps(run: Run, table: LabelTable) -> Predictions:
    """Rows [b] of a table and their class maps [b, C, H, W]; none if the run has none."""
    if run.record.features is not None:  # one vector per image
        return
    model = run.classifier().to(find_device(run.execution.device))
    score_places = class_maps_of(model.head)
    if score_places is not None:
        yield from apply_to_maps(run, model, table, score_places)


def apply_to_maps(
    run: Run, model: Classifier, table: LabelTable, function: Callable[[Tensor], Tensor]
) -> Predictions:
    """Rows [b] of a table, and ``function`` of their feature maps [b, D, H, W]."""
    inputs = inputs_of(run, model, table, keep_maps=True, evidence=False)
    return iterate_logits(
        model,
        inputs,
        np.arange(len(table)),
        run.settings.batch,
        run.execution.workers,
        forward=lambda model, images: function(model.backbone(images)).cpu(),
    )


def make_strips(sample: Sample, assessment: Assessment, thresholds: Scores) -> list[dict[str, Any]]:
    """A few training images, each with heat maps of its labels, one row per run."""
    decided, _ = assessment.decided(sample.ours.run.selection.train[sample.drawn])
    cells = zip(sample.labels, sample.ours.train, decided, strict=True)
    choices = [choose_labels(known, scores, thresholds, fills) for known, scores, fills in cells]
    if not choices:
        return []
    rows = np.array(choose_images(choices, _IMAGES), dtype=np.int64)
    table = sample.scored.training.subset(rows)
    runs = [sample.ours, *([sample.baseline] if sample.baseline else [])]
    maps = [dict(_heat_by_row(class_maps(scores.run, table))) for scores in runs]
    if not maps[0]:
        return []
    limits_of_runs = [thresholds_or_half(scores.run) for scores in runs]
    strips = []
    for number, path in enumerate(locate_all(table, sample.ours.run.images)):
        picture, row = read_picture(path, _SIZE), int(rows[number])
        tiles = [
            (scores.name, [
                _tile(picture, heat[number], choice, sample.classes, scores.train[row], limits)
                for choice in choices[row]
            ])
            for scores, heat, limits in zip(runs, maps, limits_of_runs, strict=True)
            if number in heat
        ]  # fmt: skip
        strips.append({"name": table.ids[number], "image": data_address(picture), "runs": tiles})
    return strips


def about_heat_maps(runs: list[RunScores]) -> str:
    """What the colours mean, which depends on the head."""
    if any(isinstance(scores.run.classifier().head, LabelDecoder) for scores in runs):
        return (
            "A decoder does not score places. Its heat maps show where the query of the label pays "
            "more attention than elsewhere, whether the label is present or not."
        )
    return "A map without colour has no place that raises the score of the label."


def _heat_by_row(parts: Predictions) -> Iterator[tuple[int, Tensor]]:
    """Each row with its heat maps [C, H, W]."""
    for rows, maps in parts:
        yield from zip(rows.tolist(), heat_maps(maps), strict=True)


def _tile(
    picture: Tensor,
    heat: Tensor,
    choice: Choice,
    classes: list[str],
    scores: NDArray[Any],
    thresholds: Scores,
) -> dict[str, str]:
    """A heat map over an image [3, S, S], with the label and its score as text.

    Args:
        heat: [C, H, W] the heat maps of all classes.
        scores: [C] the scores of the run for this image.
        thresholds: [C]
    """
    j = choice.column
    text = f"{_MARKS[choice.kind]} {classes[j]} {whole_percent(scores[j])}"
    if choice.kind == "absent":
        text += f" (predicted from {whole_percent(thresholds[j])})"
    image = data_address(overlay(picture, heat[j]))
    return {"kind": choice.kind, "text": text, "image": image}
