"""The pointing game: whether the maxima of class maps lie on objects."""

from typing import Any

import numpy as np

from partlabel.base.errors import InputError, count
from partlabel.images.named_images import open_images
from partlabel.judging.pseudo_label_rates import ratio
from partlabel.labels.formats.boxes import BoxFile
from partlabel.metrics.pointing import Pointing, boxes_of, highest_places, play
from partlabel.output.report.heat_map_strips import class_maps
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Section, percent


def play_games(sample: Sample, box_file: BoxFile) -> dict[str, Pointing]:
    """The result of each run with class maps, by its name, on training and validation images."""
    run, scored = sample.ours.run, sample.scored
    images = scored.table.subset(np.concatenate([scored.train, scored.val]))
    boxes = boxes_of(images, box_file, open_images(run.images))
    with_boxes, boxes = boxes.compact()
    table = images.subset(with_boxes)
    games = {}
    for scores in sample.runs:
        points = np.full((len(table), len(sample.classes), 2), np.nan)
        for rows, maps in class_maps(scores.run, table):
            points[rows] = highest_places(maps.numpy())
        if not np.isnan(points).any():
            games[scores.name] = play(points, boxes)
    if sample.ours.name not in games:
        raise InputError(
            f"{run.folder}: its head has no class maps to compare with --boxes; leave --boxes out"
        )
    return games


def pointing(games: dict[str, Pointing], classes: list[str]) -> list[Section]:
    """Whether maxima lie on objects: one row per class that has boxes."""
    if not games:
        return []
    first = next(iter(games.values()))
    total = int(first.targets.sum())
    if not total:
        return []
    with_boxes: list[tuple[str, Any]] = [
        (classes[j], slice(j, j + 1)) for j in np.flatnonzero(first.targets).tolist()
    ]
    rows = [
        [
            name,
            f"{first.targets[part].sum():,}",
            percent(ratio(first.covered[part], first.targets[part])),
            *(percent(ratio(game.hits[part], game.targets[part])) for game in games.values()),
        ]
        for name, part in [("all", slice(None)), *with_boxes]
    ]
    caption = (
        "How often, in percent, the maximum of a class map lies in a box of the class. Counted are "
        f"{count(total, 'pair')} of an image and a class with a box in it. Chance is the share of "
        "the image that the boxes cover. A model that is no better than chance may recognise a "
        "class by its surroundings."
    )
    header = ["class", "images", "chance", *games]
    return [Section("Does it look at the object?", caption, "", header, rows)]
