"""Where runs look: the class maps of their heads, over pictures and against boxes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base.errors import InputError
from partlabel.images.folder import ImageFiles
from partlabel.images.pictures import read_picture
from partlabel.judging.completion import Assessment
from partlabel.judging.scoring import thresholds_or_half
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.labels.formats.boxes import BoxFile
from partlabel.metrics.pointing import Pointing, boxes_of, highest_places, play
from partlabel.models import Classifier
from partlabel.models.heads import LabelDecoder, class_maps_of, heat_maps
from partlabel.models.prediction import Predictions, predict
from partlabel.output.report.figures import data_address, overlay
from partlabel.output.report.sample import Sample
from partlabel.training.inputs import make_inputs
from partlabel.training.run import Run
from partlabel.training.selection import locate_all

_IMAGES = 6
_SIZE = 168  # pixels of a picture
_KINDS = ("known", "absent", "filled", "open")
_MARKS = {"known": "● ", "absent": "", "filled": "+ ", "open": "? "}


@dataclass(frozen=True)
class Choice:
    """A label of a picture that is worth a look.

    Args:
        kind: ``known`` to be present; ``absent``, and yet predicted; ``filled`` in as present; or
            ``open``, the likeliest of those that stay unknown.
        column: its class.
    """

    kind: str
    column: int


def choose_labels(
    labels: NDArray[Any], scores: NDArray[Any], limits: NDArray[Any], decided: NDArray[Any]
) -> list[Choice]:
    """The likeliest label of each kind, an open one only if none is filled in.

    Args:
        labels: [C] what is known of a picture.
        scores: [C]
        limits: [C] from where up a class is predicted.
        decided: [C] what would be filled in.
    """
    kinds = {
        "known": labels == PRESENT,
        "absent": (labels == ABSENT) & (scores >= limits),
        "filled": (labels == 0) & (decided == PRESENT),
        "open": (labels == 0) & (decided == 0),
    }
    if kinds["filled"].any():
        del kinds["open"]
    return [
        Choice(kind, int(np.where(here, scores, -np.inf).argmax()))
        for kind, here in kinds.items()
        if here.any()
    ]


def choose_pictures(choices: list[list[Choice]], most: int) -> list[int]:
    """So many pictures, in which rare kinds of labels come about as often as common ones."""
    has = np.array([[kind in {c.kind for c in one} for kind in _KINDS] for one in choices])
    chosen: list[int] = []
    while len(chosen) < min(most, len(choices)):
        seen = has[chosen].sum(axis=0)
        worth = (has / (1.0 + seen)).sum(axis=1)
        worth[chosen] = -1
        chosen.append(int(worth.argmax()))
    return chosen


def class_maps(run: Run, table: LabelTable) -> Predictions:
    """Rows [b] of a table and their class maps [b, C, H, W]; none if the head has none."""
    model = run.classifier()
    score_places = class_maps_of(model.head)
    if score_places is not None:
        yield from over_maps(run, model, table, score_places)


def over_maps(
    run: Run, model: Classifier, table: LabelTable, function: Callable[[Tensor], Tensor]
) -> Predictions:
    """Rows [b] of a table, and ``function`` of their feature maps [b, D, H, W]."""
    paths, settings = locate_all(table, run.images), run.settings
    inputs = make_inputs(
        model, table, paths, settings, run.execution, lambda message: None, keep_maps=True
    )
    return predict(
        model,
        inputs,
        np.arange(len(table)),
        settings.batch,
        run.execution.workers,
        forward=lambda model, images: function(model.backbone(images)).cpu(),
    )


def looks(sample: Sample, assessment: Assessment) -> list[dict[str, Any]]:
    """A few training pictures, each with heat maps of its labels, a row a run."""
    decided = assessment.guarantees.decide(assessment.calibration.logits(sample.ours.train))
    limits = thresholds_or_half(sample.ours.run)
    cells = zip(sample.labels, sample.ours.train, decided, strict=True)
    choices = [choose_labels(known, said, limits, done) for known, said, done in cells]
    if not choices:
        return []
    rows = np.array(choose_pictures(choices, _IMAGES), dtype=np.int64)
    table = sample.shown.subset(rows)
    shown = [sample.ours, *([sample.baseline] if sample.baseline else [])]
    maps = [dict(_by_row(class_maps(seen.run, table))) for seen in shown]
    if not maps[0]:
        return []
    paths = locate_all(table, sample.ours.run.images)
    found = []
    for number, row in enumerate(rows.tolist()):
        picture = read_picture(paths[number], _SIZE)
        tiles = [
            (seen.name, [
                _tile(picture, heat[number][choice.column], words, choice.kind)
                for choice in choices[row]
                for words in [_words(choice, seen.train[row], limits, sample.classes)]
            ])
            for seen, heat in zip(shown, maps, strict=True)
            if number in heat
        ]  # fmt: skip
        found.append({"name": table.ids[number], "image": data_address(picture), "runs": tiles})
    return found


def about_looks(sample: Sample) -> str:
    """What colour means, which depends on the head."""
    attends = any(isinstance(seen.run.classifier().head, LabelDecoder) for seen in sample.runs)
    if attends:
        return (
            "A decoder has no scores of places: of it, red are the places that the query of the "
            "label looks at more than at others, be it there or not."
        )
    return "One without colour has no place that speaks for the label."


def _by_row(parts: Predictions) -> Iterator[tuple[int, Tensor]]:
    """Each row with its heat maps [C, H, W]."""
    for rows, maps in parts:
        yield from zip(rows.tolist(), heat_maps(maps), strict=True)


def _words(choice: Choice, scores: NDArray[Any], limits: NDArray[Any], classes: list[str]) -> str:
    """A label and its score, and why it is shown if that is not plain to see."""
    j = choice.column
    text = f"{_MARKS[choice.kind]}{classes[j]} {100 * scores[j]:.0f}%"
    return text + f" (predicted from {100 * limits[j]:.0f}% up)" * (choice.kind == "absent")


def _tile(picture: Tensor, heat: Tensor, words: str, kind: str) -> dict[str, str]:
    return {"kind": kind, "text": words, "image": data_address(overlay(picture, heat))}


def pointing_game(sample: Sample, stated: BoxFile) -> dict[str, Pointing]:
    """How each run with class maps does, by its name, on all pictures that were looked at."""
    run = sample.ours.run
    boxes = boxes_of(sample.shown, stated, ImageFiles(run.images))
    with_boxes, boxes = boxes.compact()
    table = sample.shown.subset(with_boxes)
    games = {}
    for seen in sample.runs:
        points = np.full((len(table), len(sample.classes), 2), np.nan)
        for rows, maps in class_maps(seen.run, table):
            points[rows] = highest_places(maps.numpy())
        if not np.isnan(points).any():
            games[seen.name] = play(points, boxes)
    if sample.ours.name not in games:
        raise InputError(f"{run.folder}: its head scores no places, which --boxes could be "
                         "compared with; leave it out")  # fmt: skip
    return games
